//! Each fused step gives the bits of its definition in plain steps.

use cpu::CpuDevice;
use cpu::isa::Isa;
use model::Activation;
use plan::reference::ReferenceDevice;
use plan::{Device, Fusion, KvType, KvTypes, Limits, Part, Program, Slot, Step, assign_slots, fuse, lower};
use testkit::{Architecture, Model, Options, Random, families, quantised, synthetic};
use turbospark_conformance::{Driver, Failures, Graph};
use weights::{DType, Weights};

const VOCAB: usize = 50;
const LIMITS: Limits =
    Limits { rows: 80, wanted: 80, blocks: 8, kv: KvTypes::both(KvType::F16), sequences: 99, state_slots: 8 };

/// A program with a fused step at its end.
struct Fused {
    name: String,
    graph: Graph,
    step: Step,
    out: Slot,
}

fn cases() -> Vec<Fused> {
    let mut cases = Vec::new();
    for (i, dtype) in DType::MATRICES.iter().enumerate() {
        let inputs = if dtype.block_len() == 1 { 45 } else { dtype.block_len() };
        // A neighbour of another type, so that one input is needed as it is and quantised.
        let other = DType::MATRICES[(i + 5) % DType::MATRICES.len()];
        let other = if inputs % other.block_len() == 0 { other } else { DType::F32 };
        for outputs in [3, 8, 77] {
            let name = |what: &str| format!("{what} {dtype}/{other} {outputs}x{inputs}");
            let graph = || Graph::new(i as u64, VOCAB);

            let mut g = graph();
            let x = g.input(inputs);
            let part = g.part(*dtype, [outputs, inputs], true);
            let into = g.input(outputs);
            cases.push(Fused {
                name: name("linear_add"),
                graph: g,
                step: Step::LinearAdd { x, part, into },
                out: into,
            });

            for activation in [Activation::Silu, Activation::GeluTanh] {
                let mut g = graph();
                let x = g.input(inputs);
                let (gate, up) = (g.part(*dtype, [outputs, inputs], false), g.part(other, [outputs, inputs], true));
                let to = g.slot(outputs);
                let step = Step::GateUpAct { x, gate, up, activation, to };
                cases.push(Fused { name: name("gate_up"), graph: g, step, out: to });
            }

            for out in 0..3 {
                let mut g = graph();
                let x = g.input(inputs);
                let parts: Vec<Part> = [(*dtype, outputs, true), (other, 5, false), (*dtype, outputs + 1, false)]
                    .map(|(dtype, outputs, bias)| g.part(dtype, [outputs, inputs], bias))
                    .to_vec();
                let to = parts[out].to;
                cases.push(Fused { name: name("linears"), graph: g, step: Step::Linears { x, parts }, out: to });
            }
        }
    }
    cases
}

impl Fused {
    /// The program with the fused step, and with its definition.
    fn programs(self) -> [(Program, Weights); 2] {
        let Self { mut graph, step, out, .. } = self;
        let mut plain = Graph::new(0, VOCAB);
        (plain.program, plain.weights) = (graph.program.clone(), graph.weights.clone());
        step.expand().into_iter().for_each(|step| {
            plain.step(step);
        });
        graph.step(step);
        [graph.finish(out), plain.finish(out)]
    }
}

fn outputs<D: Device>(device: &D, program: Program, weights: &Weights, ids: &[u32], chunk: usize) -> Vec<f32> {
    Driver::of_program(device, program, weights, LIMITS).logits(ids, chunk)
}

#[test]
fn a_fused_step_is_its_definition() {
    let mut failures = Failures::default();
    for case in cases() {
        let name = case.name.clone();
        let [fused, plain] = case.programs();
        for isa in [Isa::detect(), Isa::SCALAR] {
            let device = CpuDevice::new(Some(2)).with_isa(isa);
            for rows in [1, 4, 9, 33] {
                let ids = Random::new(rows as u64).tokens(rows, VOCAB);
                let run =
                    |(program, weights): &(Program, Weights)| outputs(&device, program.clone(), weights, &ids, rows);
                failures.same(format!("{name}, {rows} rows, {isa:?}"), &run(&fused), &run(&plain));
            }
        }
    }
    failures.finish();
}

fn models() -> Vec<(String, Model)> {
    let golden = families().into_iter().filter(|f| f.file == "model.safetensors").chain(quantised());
    let golden = golden.map(|f| (format!("{}/{}", f.model, f.file), Model::open(&f.path())));
    let tiny = synthetic(1, &Options::tiny().of(Architecture::Synthetic)).model();
    golden.chain([("synthetic".to_owned(), tiny)]).collect()
}

/// Every subset of the fusions, with and without shared slots, gives the bits of the plain program.
#[test]
fn whole_models_are_the_same_fused_and_plain() {
    const ALL: [Fusion; 3] = [Fusion::Linears, Fusion::LinearAdd, Fusion::GateUpAct];
    const SUBSETS: [&[Fusion]; 4] = [&[], &[Fusion::Linears], &[Fusion::LinearAdd, Fusion::GateUpAct], &ALL];
    let device = CpuDevice::new(Some(2));
    let mut failures = Failures::default();
    for (name, model) in models() {
        let ids = Random::new(3).tokens(40, model.spec.vocab);
        let plain = lower(&model.spec, &model.index).unwrap_or_else(|e| panic!("{name}: {e}"));
        let expected = outputs(&device, plain.clone(), &model.weights, &ids, 40);
        for fusions in SUBSETS {
            let mut program = plain.clone();
            fuse(&mut program, &plan::Caps { fusions, ..device.caps() });
            assert!(fusions.is_empty() || program.steps.len() < plain.steps.len(), "{name}: nothing was fused");
            let wide = program.slots.len();
            let fresh = outputs(&device, program.clone(), &model.weights, &ids, 40);
            failures.same(format!("{name}, {fusions:?}"), &fresh, &expected);
            assign_slots(&mut program);
            assert!(program.slots.len() < wide, "{name}: no slot is shared");
            for chunk in if fusions.len() == ALL.len() { &[40, 1][..] } else { &[40] } {
                let shared = outputs(&device, program.clone(), &model.weights, &ids, *chunk);
                failures.same(format!("{name}, {fusions:?}, slots shared, chunks of {chunk}"), &shared, &expected);
            }
        }
    }
    failures.finish();
}

/// The passes hold for any device: the reference device expands what it is given.
#[test]
fn the_reference_device_runs_fused_programs_over_fresh_slots() {
    let mut failures = Failures::default();
    for case in cases().into_iter().step_by(7) {
        let name = case.name.clone();
        let [fused, plain] = case.programs();
        let ids = Random::new(1).tokens(9, VOCAB);
        let kv = KvTypes::both(KvType::F32);
        let run = |(program, weights): (Program, Weights)| {
            Driver::of_program(&ReferenceDevice, program, &weights, Limits { kv, ..LIMITS }).logits(&ids, 9)
        };
        failures.same(name, &run(fused), &run(plain));
    }
    failures.finish();
}
