//! Matrix products, and the steps fused with them.

use super::rows::gated;
use super::{Compiled, Engine};
use crate::attention::with_scratch;
use crate::isa::Isa;
use crate::kernels::activation::Activations;
use crate::kernels::math;
use crate::kernels::matmul::{Input, Matrix, matmul, planes};
use crate::pool::{TileMut, Tiles};
use model::Activation;
use plan::{Batch, Part, Slot, WeightId};

impl Compiled {
    pub(super) fn linears(&mut self, engine: &Engine, x: Slot, parts: &[Part], batch: &Batch<'_>) {
        self.quantise(engine, x, parts.iter(), batch);
        for part in parts {
            self.write(part.to, batch, |this, to| {
                let rows = to.len() / this.width(part.to);
                engine.columns(to, rows, &|tile| {
                    let first = tile.first_col();
                    this.multiply(engine.isa, x, part, batch, first, tile);
                });
            });
        }
    }

    pub(super) fn linear_add(&mut self, engine: &Engine, x: Slot, part: &Part, into: Slot, batch: &Batch<'_>) {
        let isa = engine.isa;
        self.quantise(engine, x, [part].into_iter(), batch);
        self.write(into, batch, |this, buffer| {
            let rows = buffer.len() / this.width(into);
            engine.columns(buffer, rows, &|tile| {
                let (rows, first, cols) = (tile.rows(), tile.first_col(), tile.cols());
                with_scratch(rows * cols, |product| {
                    this.multiply(isa, x, part, batch, first, &mut Tiles::whole(product, rows, cols));
                    for (row, product) in product.chunks_exact(cols).enumerate() {
                        math::add(isa, tile.row_mut(row), product);
                    }
                });
            });
        });
    }

    pub(super) fn gate_up_act(
        &mut self,
        engine: &Engine,
        x: Slot,
        parts: [&Part; 2],
        (activation, to): (Activation, Slot),
        batch: &Batch<'_>,
    ) {
        let isa = engine.isa;
        self.quantise(engine, x, parts.into_iter(), batch);
        self.write(to, batch, |this, buffer| {
            let rows = buffer.len() / this.width(to);
            engine.columns(buffer, rows, &|tile| {
                let (rows, first, cols) = (tile.rows(), tile.first_col(), tile.cols());
                with_scratch(2 * rows * cols, |products| {
                    let (gates, ups) = products.split_at_mut(rows * cols);
                    this.multiply(isa, x, parts[0], batch, first, &mut Tiles::whole(gates, rows, cols));
                    this.multiply(isa, x, parts[1], batch, first, &mut Tiles::whole(ups, rows, cols));
                    for (row, (g, u)) in gates.chunks_exact(cols).zip(ups.chunks_exact(cols)).enumerate() {
                        gated(isa, activation, g, u, tile.row_mut(row));
                    }
                });
            });
        });
    }

    /// Each head by a matrix of its own.
    pub(super) fn head_linear(
        &mut self,
        engine: &Engine,
        x: Slot,
        (weight, heads): (WeightId, usize),
        to: Slot,
        batch: &Batch<'_>,
    ) {
        self.write(to, batch, |this, buffer| {
            let (width, x_width) = (this.width(to), this.width(x));
            let (outputs, inputs) = (width / heads, x_width / heads);
            let (rows, x, all) = (buffer.len() / width, this.values(x, batch), this.weight(weight).matrix());
            engine.pool.run_tiles(Tiles::columns(buffer, rows, width, outputs), &|_, mut tile| {
                let head = tile.first_col() / outputs;
                let bytes = all.bytes.len() / heads;
                let matrix = Matrix { rows: outputs, bytes: &all.bytes[head * bytes..][..bytes], ..all };
                with_scratch(rows * inputs, |own| {
                    for (own, x) in own.chunks_exact_mut(inputs).zip(x.chunks_exact(x_width)) {
                        own.copy_from_slice(&x[head * inputs..][..inputs]);
                    }
                    product(engine.isa, &matrix, own, &mut tile);
                });
            });
        });
    }

    /// Quantises a slot once, if any of the products wants it so.
    fn quantise<'a>(&mut self, engine: &Engine, x: Slot, parts: impl Iterator<Item = &'a Part>, batch: &Batch<'_>) {
        let parts: Vec<_> = parts.collect();
        parts.iter().for_each(|part| self.observe(part.weight, 0, self.values(x, batch)));
        let planes = parts.iter().filter_map(|p| planes(self.weight(p.weight).tensor().dtype())).max();
        if let Some(planes) = planes {
            let width = self.width(x);
            let mut activations = std::mem::take(&mut self.activations);
            activations.quantise_on(&engine.pool, engine.isa, self.values(x, batch), width, planes);
            self.activations = activations;
        }
    }

    /// The product of a slot's rows with the weight rows from `first` on, plus bias, into `out`.
    fn multiply(&self, isa: Isa, x: Slot, part: &Part, batch: &Batch<'_>, first: usize, out: &mut TileMut<'_>) {
        let matrix = self.weight(part.weight).matrix();
        let input = if planes(matrix.dtype).is_some() {
            Input::Quantised(&self.activations)
        } else {
            let (width, x) = (self.width(x), self.values(x, batch));
            Input::F32 { x, rows: x.len() / width, width }
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

/// All outputs of a matrix for rows that only this task needs, quantised here if need be.
fn product(isa: Isa, matrix: &Matrix<'_>, x: &[f32], out: &mut TileMut<'_>) {
    let (rows, width) = (x.len() / matrix.cols, matrix.cols);
    if let Some(planes) = planes(matrix.dtype) {
        let mut activations = Activations::default();
        activations.quantise(isa, x, width, planes);
        matmul(isa, matrix, 0..matrix.rows, &Input::Quantised(&activations), out);
    } else {
        matmul(isa, matrix, 0..matrix.rows, &Input::F32 { x, rows, width }, out);
    }
}
