//! Small programs around single steps.

use model::{Rope, Source};
use plan::{
    KvSpec, Part, Program, Residency, RopeId, Rows, Slot, SlotSpec, StateId, StateSpec, Step, WeightId, WeightRole,
    WeightUse,
};
use testkit::Random;
use weights::{DType, Tensor, Weights};

/// A program under construction with random weights; tokens are rows of its inputs.
#[derive(Debug)]
pub struct Graph {
    /// The steps so far, over fresh slots.
    pub program: Program,
    /// The weights so far.
    pub weights: Weights,
    random: Random,
    vocab: usize,
}

impl Graph {
    /// A program whose inputs have `vocab` different rows.
    pub fn new(seed: u64, vocab: usize) -> Self {
        let program = Program {
            steps: vec![],
            slots: vec![],
            weights: vec![],
            states: vec![],
            ropes: vec![],
            taps: vec![],
            logits: Slot(0),
            vocab: 0,
        };
        Self { program, weights: Weights::default(), random: Random::new(seed), vocab }
    }

    /// A slot of all rows.
    pub fn slot(&mut self, width: usize) -> Slot {
        self.slot_of(width, Rows::All)
    }

    /// Adds a step.
    pub fn step(&mut self, step: Step) -> &mut Self {
        self.program.steps.push(step);
        self
    }

    /// Random rows, one a token: values that f16 holds exactly, so that a narrow cache loses nothing.
    pub fn input(&mut self, width: usize) -> Slot {
        self.embedding(DType::F16, width, 1.0)
    }

    /// A table of this type and the rows the tokens choose from it.
    pub fn embedding(&mut self, dtype: DType, width: usize, scale: f32) -> Slot {
        let tensor = self.random.tensor("", dtype, [self.vocab, width], 1.0);
        let table = self.weight(tensor, [self.vocab, width], WeightRole::Table);
        let to = self.slot(width);
        self.step(Step::Embed { table, scale, to });
        to
    }

    /// A random matrix.
    pub fn matrix(&mut self, dtype: DType, outputs: usize, inputs: usize) -> WeightId {
        let tensor = self.random.matrix("", dtype, [outputs, inputs]);
        self.weight(tensor, [outputs, inputs], WeightRole::Matrix)
    }

    /// A random vector.
    pub fn vector(&mut self, width: usize) -> WeightId {
        let values = self.random.normals(width, 1.0, 0.5);
        self.weight(Tensor::from_f32("", vec![width], &values), [1, width], WeightRole::Vector)
    }

    /// Random matrices of several experts, one above the other.
    pub fn experts(&mut self, dtype: DType, count: usize, [outputs, inputs]: [usize; 2]) -> WeightId {
        let tensor = self.random.matrix("", dtype, [count * outputs, inputs]);
        self.weight(tensor, [count * outputs, inputs], WeightRole::Experts(count))
    }

    /// A random lookup table that tokens do not index by themselves.
    pub fn table(&mut self, dtype: DType, rows: usize, width: usize) -> WeightId {
        let tensor = self.random.tensor("", dtype, [rows, width], 1.0);
        self.weight(tensor, [rows, width], WeightRole::Table)
    }

    /// A vector of these values.
    pub fn values(&mut self, values: &[f32]) -> WeightId {
        self.weight(Tensor::from_f32("", vec![values.len()], values), [1, values.len()], WeightRole::Vector)
    }

    /// A random product of `inputs` to `outputs` channels into a fresh slot.
    pub fn part(&mut self, dtype: DType, [outputs, inputs]: [usize; 2], bias: bool) -> Part {
        let weight = self.matrix(dtype, outputs, inputs);
        let bias = bias.then(|| self.vector(outputs));
        Part { weight, bias, to: self.slot(outputs) }
    }

    /// A rotary embedding.
    pub fn rope(&mut self, rope: Rope) -> RopeId {
        self.program.ropes.push(rope);
        RopeId((self.program.ropes.len() - 1) as u16)
    }

    /// A tensor that no step names, for what is evaluated at compile time.
    pub fn tensor(&mut self, name: &str, values: &[f32]) -> Source {
        self.weights.insert(Tensor::from_f32(name, vec![values.len()], values));
        Source::tensor(name)
    }

    /// A cache.
    pub fn state(&mut self, spec: KvSpec) -> StateId {
        self.remember(StateSpec::Kv(spec))
    }

    /// A state of any kind.
    pub fn remember(&mut self, spec: StateSpec) -> StateId {
        self.program.states.push(spec);
        StateId((self.program.states.len() - 1) as u16)
    }

    /// Ends the program: its logits are the wanted rows of a slot, and zeros up to as many as there are tokens.
    pub fn finish(mut self, out: Slot) -> (Program, Weights) {
        let width = self.program.slot(out).width;
        let rows = self.slot_of(width, Rows::Wanted);
        self.step(Step::TakeRows { x: out, to: rows });
        (self.program.logits, self.program.vocab) = (rows, width);
        if width < self.vocab {
            // A product with the identity, which moves values and rounds none.
            let identity: Vec<f32> = (0..self.vocab * width).map(|i| f32::from(i % width == i / width)).collect();
            let shape = [self.vocab, width];
            let weight = self.weight(Tensor::from_f32("", shape.to_vec(), &identity), shape, WeightRole::Matrix);
            let to = self.slot_of(self.vocab, Rows::Wanted);
            self.step(Step::Linear { x: rows, part: Part { weight, bias: None, to } });
            (self.program.logits, self.program.vocab) = (to, self.vocab);
        }
        (self.program, self.weights)
    }

    fn slot_of(&mut self, width: usize, rows: Rows) -> Slot {
        self.program.slots.push(SlotSpec { width, rows });
        Slot((self.program.slots.len() - 1) as u16)
    }

    fn weight(&mut self, tensor: Tensor, shape: [usize; 2], role: WeightRole) -> WeightId {
        let id = WeightId(self.program.weights.len() as u32);
        let name = format!("weight {}", id.0);
        self.weights.insert(tensor.renamed(name.as_str()));
        self.program.weights.push(WeightUse {
            source: Source::tensor(name),
            shape,
            role,
            to: None,
            residency: Residency::Ram,
        });
        id
    }
}
