//! Runs a program on the thread pool.

use crate::attention::{Attend, with_scratch};
use crate::cache::Cache;
use crate::device::CpuDevice;
use crate::isa::Isa;
use crate::kernels::activation::Activations;
use crate::kernels::matmul::{Input, OUTPUTS, matmul, wants_quantised};
use crate::kernels::{math, rope};
use crate::load::Stored;
use crate::pool::{Pool, TileMut, Tiles};
use model::{Activation, RopeScaling};
use plan::{
    Batch, Exec, ExecError, KV_BLOCK, Limits, Outputs, Part, PlanError, Program, ProgramId, Rows,
    Slot, StateCopy, Step, WeightId, values,
};
use weights::Weights;

/// Tiles a matrix product is cut into for each thread: more even out the load, fewer cost less.
const TILES_PER_THREAD: usize = 4;

/// Rows a task of a row-wise step takes.
const ROWS_PER_TASK: usize = 8;

/// Programs on the CPU, with their weights and caches.
#[derive(Debug)]
pub struct CpuExec {
    programs: Vec<Compiled>,
    limits: Limits,
    engine: Engine,
}

#[derive(Debug)]
struct Engine {
    pool: Pool,
    isa: Isa,
}

#[derive(Debug)]
struct Compiled {
    program: Program,
    weights: Vec<Stored>,
    frequencies: Vec<Vec<f32>>,
    caches: Vec<Cache>,
    slots: Vec<Vec<f32>>,
    activations: Activations,
    /// (cos, sin) of each row's angles, one table a rope.
    angles: Vec<Vec<[f32; 2]>>,
}

impl CpuExec {
    pub(crate) fn new(
        programs: Vec<Program>,
        weights: &Weights,
        limits: Limits,
        device: CpuDevice,
    ) -> Result<Self, PlanError> {
        let programs = programs
            .into_iter()
            .map(|p| Compiled::new(p, weights, &limits))
            .collect::<Result<_, _>>()?;
        let engine = Engine {
            pool: Pool::new(device.threads()),
            isa: device.isa(),
        };
        Ok(Self {
            programs,
            limits,
            engine,
        })
    }
}

impl Compiled {
    fn new(program: Program, weights: &Weights, limits: &Limits) -> Result<Self, PlanError> {
        let stored = program
            .weights
            .iter()
            .map(|w| Stored::load(w, weights))
            .collect::<Result<_, _>>()?;
        let mut frequencies = Vec::new();
        for rope in &program.ropes {
            let divisors = match &rope.scaling {
                RopeScaling::Divisors(source) => Some(values(source, weights)?),
                _ => None,
            };
            frequencies.push(rope.frequencies(divisors.as_deref()));
        }
        let height = |rows| {
            if rows == Rows::All {
                limits.rows
            } else {
                limits.wanted
            }
        };
        Ok(Self {
            caches: program
                .states
                .iter()
                .map(|s| Cache::new(*s, limits.blocks, limits.kv))
                .collect(),
            slots: program
                .slots
                .iter()
                .map(|s| vec![0.0; s.width * height(s.rows)])
                .collect(),
            angles: vec![Vec::new(); program.ropes.len()],
            activations: Activations::default(),
            weights: stored,
            frequencies,
            program,
        })
    }

    fn weight(&self, id: WeightId) -> &Stored {
        &self.weights[id.0 as usize]
    }

    /// The values of a slot in this run.
    fn values(&self, slot: Slot, batch: &Batch<'_>) -> &[f32] {
        &self.slots[slot.0 as usize][..self.len(slot, batch)]
    }

    fn len(&self, slot: Slot, batch: &Batch<'_>) -> usize {
        let spec = self.program.slot(slot);
        spec.width
            * if spec.rows == Rows::All {
                batch.tokens.len()
            } else {
                batch.wanted.len()
            }
    }

    /// Calls `f` with a slot's values while the others can be read.
    fn write(&mut self, slot: Slot, batch: &Batch<'_>, f: impl FnOnce(&Self, &mut [f32])) {
        let len = self.len(slot, batch);
        let mut buffer = std::mem::take(&mut self.slots[slot.0 as usize]);
        f(self, &mut buffer[..len]);
        self.slots[slot.0 as usize] = buffer;
    }

    fn step(&mut self, engine: &Engine, step: &Step, batch: &Batch<'_>) {
        let (pool, isa) = (&engine.pool, engine.isa);
        match step {
            Step::Embed { table, scale, to } => self.write(*to, batch, |this, to| {
                let table = this.weight(*table).tensor();
                for (token, row) in batch.tokens.iter().zip(to.chunks_exact_mut(table.cols())) {
                    if let Err(error) = table.row_to_f32(token.index(), row) {
                        unreachable!("the type and the token were checked: {error}");
                    }
                    row.iter_mut().for_each(|x| *x *= scale);
                }
            }),
            Step::Norm { x, weight, eps, to } => {
                let width = self.program.slot(*x).width;
                self.write(*to, batch, |this, to| {
                    let (x, weight) = (this.values(*x, batch), this.weight(*weight).vector());
                    engine.rows(to, width, &|row, to| {
                        math::rms_norm(isa, &x[row * width..][..width], Some(weight), *eps, to)
                    });
                });
            }
            Step::Linear { x, part } => self.linears(engine, *x, std::slice::from_ref(part), batch),
            Step::Linears { x, parts } => self.linears(engine, *x, parts, batch),
            Step::HeadNorm {
                x,
                weight,
                heads,
                eps,
            } => {
                let width = self.program.slot(*x).width;
                self.write(*x, batch, |this, x| {
                    let weight = this.weight(*weight).vector();
                    let dim = width / heads;
                    engine.rows(x, width, &|_, row| {
                        for head in row.chunks_exact_mut(dim) {
                            math::rms_norm_in_place(isa, head, Some(weight), *eps);
                        }
                    });
                });
            }
            Step::Rope { x, heads, rope } => {
                let width = self.program.slot(*x).width;
                self.write(*x, batch, |this, x| {
                    let index = rope.0 as usize;
                    let (pairing, angles) =
                        (this.program.ropes[index].pairing, &this.angles[index]);
                    let pairs = this.frequencies[index].len();
                    engine.rows(x, width, &|row, values| {
                        for head in values.chunks_exact_mut(width / heads) {
                            rope::rotate(head, &angles[row * pairs..][..pairs], pairing);
                        }
                    });
                });
            }
            Step::Append { k, v, state } => {
                let width = self.program.slot(*k).width;
                let mut cache = self.caches.swap_remove(state.0 as usize);
                let (k, v) = (self.values(*k, batch), self.values(*v, batch));
                for (row, (k, v)) in k.chunks_exact(width).zip(v.chunks_exact(width)).enumerate() {
                    let position = batch.positions[row] as usize;
                    let blocks = batch.sequences[batch.sequence[row] as usize].blocks;
                    cache.append(blocks[position / KV_BLOCK], position % KV_BLOCK, k, v);
                }
                self.put_cache(state.0 as usize, cache);
            }
            Step::Attend {
                q,
                state,
                heads,
                scale,
                window,
                to,
            } => self.write(*to, batch, |this, to| {
                let cache = &this.caches[state.0 as usize];
                let attend = Attend {
                    cache,
                    batch,
                    heads: *heads,
                    scale: *scale,
                    window: *window,
                    isa,
                };
                attend.run(pool, this.values(*q, batch), to);
            }),
            Step::GatedAct {
                gate,
                up,
                activation,
                to,
            } => {
                let width = self.program.slot(*to).width;
                self.write(*to, batch, |this, to| {
                    let (gate, up) = (this.values(*gate, batch), this.values(*up, batch));
                    engine.rows(to, width, &|row, to| {
                        let at = row * width..(row + 1) * width;
                        gated(isa, *activation, &gate[at.clone()], &up[at], to);
                    });
                });
            }
            Step::Add { into, x } => {
                let width = self.program.slot(*x).width;
                self.write(*into, batch, |this, into| {
                    let x = this.values(*x, batch);
                    engine.rows(into, width, &|row, into| {
                        math::add(isa, into, &x[row * width..][..width])
                    });
                });
            }
            Step::TakeRows { x, to } => {
                let width = self.program.slot(*x).width;
                self.write(*to, batch, |this, to| {
                    let x = this.values(*x, batch);
                    for (row, to) in batch.wanted.iter().zip(to.chunks_exact_mut(width)) {
                        to.copy_from_slice(&x[*row as usize * width..][..width]);
                    }
                });
            }
            Step::LinearAdd { x, part, into } => {
                self.quantise(engine, *x, std::slice::from_ref(part), batch);
                self.write(*into, batch, |this, buffer| {
                    let rows = buffer.len() / this.program.slot(*into).width;
                    engine.columns(buffer, rows, &|tile| {
                        let (rows, first, cols) = (tile.rows(), tile.first_col(), tile.cols());
                        with_scratch(rows * cols, |product| {
                            this.multiply(
                                isa,
                                *x,
                                part,
                                batch,
                                first,
                                &mut Tiles::whole(product, rows, cols),
                            );
                            for (row, product) in product.chunks_exact(cols).enumerate() {
                                math::add(isa, tile.row_mut(row), product);
                            }
                        });
                    });
                });
            }
            Step::GateUpAct {
                x,
                gate,
                up,
                activation,
                to,
            } => {
                self.quantise(engine, *x, &[gate.clone(), up.clone()], batch);
                self.write(*to, batch, |this, buffer| {
                    let rows = buffer.len() / this.program.slot(*to).width;
                    engine.columns(buffer, rows, &|tile| {
                        let (rows, first, cols) = (tile.rows(), tile.first_col(), tile.cols());
                        with_scratch(2 * rows * cols, |products| {
                            let (gates, ups) = products.split_at_mut(rows * cols);
                            this.multiply(
                                isa,
                                *x,
                                gate,
                                batch,
                                first,
                                &mut Tiles::whole(gates, rows, cols),
                            );
                            this.multiply(
                                isa,
                                *x,
                                up,
                                batch,
                                first,
                                &mut Tiles::whole(ups, rows, cols),
                            );
                            for (row, (g, u)) in gates
                                .chunks_exact(cols)
                                .zip(ups.chunks_exact(cols))
                                .enumerate()
                            {
                                gated(isa, *activation, g, u, tile.row_mut(row));
                            }
                        });
                    });
                });
            }
        }
    }

    fn put_cache(&mut self, at: usize, cache: Cache) {
        self.caches.push(cache);
        let last = self.caches.len() - 1;
        self.caches.swap(at, last);
    }

    fn linears(&mut self, engine: &Engine, x: Slot, parts: &[Part], batch: &Batch<'_>) {
        self.quantise(engine, x, parts, batch);
        for part in parts {
            self.write(part.to, batch, |this, to| {
                let rows = to.len() / this.program.slot(part.to).width;
                engine.columns(to, rows, &|tile| {
                    let first = tile.first_col();
                    this.multiply(engine.isa, x, part, batch, first, tile);
                });
            });
        }
    }

    /// Quantises a slot once, if any of the products wants it so.
    fn quantise(&mut self, engine: &Engine, x: Slot, parts: &[Part], batch: &Batch<'_>) {
        if parts
            .iter()
            .any(|p| wants_quantised(self.weight(p.weight).tensor().dtype()))
        {
            let width = self.program.slot(x).width;
            let mut activations = std::mem::take(&mut self.activations);
            activations.quantise_on(&engine.pool, engine.isa, self.values(x, batch), width);
            self.activations = activations;
        }
    }

    /// The product of a slot's rows with the weight rows from `first` on, plus bias, into `out`.
    fn multiply(
        &self,
        isa: Isa,
        x: Slot,
        part: &Part,
        batch: &Batch<'_>,
        first: usize,
        out: &mut TileMut<'_>,
    ) {
        let matrix = self.weight(part.weight).matrix();
        let input = if wants_quantised(matrix.dtype) {
            Input::Quantised(&self.activations)
        } else {
            let width = self.program.slot(x).width;
            let x = self.values(x, batch);
            Input::F32 {
                x,
                rows: x.len() / width,
                width,
            }
        };
        matmul(isa, &matrix, first..first + out.cols(), &input, out);
        if let Some(bias) = part.bias {
            let bias = &self.weight(bias).vector()[first..][..out.cols()];
            for row in 0..out.rows() {
                math::add(isa, out.row_mut(row), bias);
            }
        }
    }
}

impl Engine {
    /// Runs `task(row, values)` for each row of a buffer, on several threads when there are many.
    fn rows(&self, buffer: &mut [f32], width: usize, task: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        if buffer.len() / width <= ROWS_PER_TASK {
            buffer
                .chunks_exact_mut(width)
                .enumerate()
                .for_each(|(row, values)| task(row, values));
            return;
        }
        self.pool
            .run_tiles(Tiles::rows(buffer, width, ROWS_PER_TASK), &|_, mut tile| {
                for row in 0..tile.rows() {
                    task(tile.first_row() + row, tile.row_mut(row));
                }
            });
    }

    /// Runs `task` on column tiles of `[rows, width]`.
    fn columns(&self, buffer: &mut [f32], rows: usize, task: &(dyn Fn(&mut TileMut<'_>) + Sync)) {
        let width = buffer.len() / rows.max(1);
        let tile = width
            .div_ceil(self.pool.threads() * TILES_PER_THREAD)
            .next_multiple_of(OUTPUTS);
        let tiles = Tiles::columns(buffer, rows, width, tile.max(OUTPUTS));
        self.pool.run_tiles(tiles, &|_, mut tile| task(&mut tile));
    }
}

fn gated(isa: Isa, activation: Activation, gate: &[f32], up: &[f32], to: &mut [f32]) {
    match activation {
        Activation::Silu => math::silu_mul(isa, gate, up, to),
        Activation::GeluTanh => math::gelu_tanh_mul(isa, gate, up, to),
    }
}

impl Exec for CpuExec {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn vocab(&self, program: ProgramId) -> usize {
        self.programs[program.0].program.vocab
    }

    fn run(
        &mut self,
        program: ProgramId,
        batch: &Batch<'_>,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), ExecError> {
        batch.check(&self.limits, self.vocab(program), outputs.logits.len())?;
        let compiled = &mut self.programs[program.0];
        for (angles, frequencies) in compiled.angles.iter_mut().zip(&compiled.frequencies) {
            rope::angles(batch.positions, frequencies, angles);
        }
        let steps = std::mem::take(&mut compiled.program.steps);
        for step in &steps {
            if batch.wanted.is_empty() && matches!(step, Step::TakeRows { .. }) {
                break;
            }
            compiled.step(&self.engine, step, batch);
        }
        compiled.program.steps = steps;
        outputs
            .logits
            .copy_from_slice(compiled.values(compiled.program.logits, batch));
        Ok(())
    }

    fn copy_states(&mut self, copies: &[StateCopy]) -> Result<(), ExecError> {
        for cache in self.programs.iter_mut().flat_map(|p| &mut p.caches) {
            copies
                .iter()
                .for_each(|copy| cache.copy(copy.from, copy.to));
        }
        Ok(())
    }
}
