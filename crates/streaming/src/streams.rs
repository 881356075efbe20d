//! The streamed experts of a program: which a run needs, which are there, which are being read.
//!
//! A layer's run is [`Streams::begin`], then [`Streams::arrivals`] and [`Streams::done`] until nothing more comes. An expert that was
//! handed out is an [`Arc`] of whoever computes with it, and only what nobody holds is ever given up, so that no place is
//! filled again too early. An expert is among those kept only after all of it was read.

use crate::place::{BankPlace, ExpertPlace, PartPlace, banks, given, streamed_bytes};
use crate::readers::{Done, Job, Readers};
use crate::slots::Slots;
use plan::{ExpertStats, PlanError, Program, WeightId};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weights::io::{OpenFiles, Pages, ReadAt};
use weights::{DType, Tensor, Weights, WeightsError};

/// Runs of all layers after which their shares of the slots are compared.
const REVIEW: u64 = 32;

/// An expert in memory.
#[derive(Debug)]
pub struct Held {
    buffers: Vec<Pages>,
    parts: [Part; 3],
}

#[derive(Debug)]
enum Part {
    Stored { dtype: DType, rows: usize, cols: usize, buffer: usize, start: usize, bytes: usize },
    Made(Tensor),
}

impl Held {
    /// Gate (0), up (1) or down (2): type, rows, columns and the bytes of its blocks.
    pub fn matrix(&self, part: usize) -> (DType, usize, usize, &[u8]) {
        match &self.parts[part] {
            Part::Stored { dtype, rows, cols, buffer, start, bytes } => {
                (*dtype, *rows, *cols, &self.buffers[*buffer].bytes()[*start..start + bytes])
            }
            Part::Made(tensor) => (tensor.dtype(), tensor.rows(), tensor.cols(), tensor.bytes()),
        }
    }

    fn made_bytes(&self) -> u64 {
        let made = |part: &Part| if let Part::Made(tensor) = part { tensor.bytes().len() as u64 } else { 0 };
        self.parts.iter().map(made).sum()
    }
}

/// An expert that a run needs, and its matrices.
pub type Arrived = (usize, Arc<Held>);

/// Streamed experts of one layer.
#[derive(Debug)]
struct Bank {
    place: BankPlace,
    slots: Slots,
    /// Bytes of each buffer of one expert.
    buffers: Vec<usize>,
    /// Bytes of what may be made of one; they count from the beginning of its reads.
    made: u64,
}

/// An expert that is being read.
#[derive(Debug)]
struct Reading {
    left: usize,
    buffers: Vec<Option<Pages>>,
    starts: Vec<usize>,
}

/// The layer at hand.
#[derive(Debug)]
struct Flow {
    bank: usize,
    ready: Vec<Arrived>,
    waiting: VecDeque<usize>,
    reading: BTreeMap<usize, Reading>,
    /// Reads that were started and are not over.
    in_flight: usize,
}

/// The streamed experts of a program.
#[derive(Debug)]
pub struct Streams {
    banks: Vec<Bank>,
    files: BTreeMap<Arc<Path>, Arc<dyn ReadAt>>,
    readers: Readers,
    /// Buffers of experts that nobody uses.
    free: Vec<Vec<Pages>>,
    /// Bytes of all experts and buffers.
    allocated: u64,
    limit: u64,
    /// Experts outside the slots: being read, handed out, or not yet offered.
    staged: usize,
    flow: Option<Flow>,
    begun: u64,
    stats: ExpertStats,
}

impl Streams {
    /// The streams of those banks of a program whose experts are [`plan::Residency::Streamed`]; `None` if there are none.
    ///
    /// # Errors
    /// If a bank cannot be streamed, or a file cannot be opened again.
    pub fn new(program: &Program, weights: &Weights, files: &dyn OpenFiles) -> Result<Option<Self>, PlanError> {
        let mut places = banks(program, weights)?;
        places.retain(|place| given(program, place).is_some());
        if places.is_empty() {
            return Ok(None);
        }
        let limit = streamed_bytes(&places, |place| given(program, place));
        let mut opened: BTreeMap<Arc<Path>, Arc<dyn ReadAt>> = BTreeMap::new();
        for range in places.iter().flat_map(|p| &p.experts).flat_map(|e| &e.reads) {
            if !opened.contains_key(&range.path) {
                let failed = |source| WeightsError::Io { action: "open", path: range.path.to_path_buf(), source };
                opened.insert(range.path.clone(), files.open(&range.path).map_err(failed)?);
            }
        }
        let bank = |place: BankPlace| {
            let share = given(program, &place).unwrap_or(1);
            let slots = Slots::new(place.bank.experts, share);
            let buffers = place.buffers();
            let made = place.staged() - buffers.iter().sum::<usize>() as u64;
            Bank { buffers, made, slots, place }
        };
        let failed = |source| WeightsError::Io { action: "start threads for", path: "experts".into(), source };
        Ok(Some(Self {
            banks: places.into_iter().map(bank).collect(),
            files: opened,
            readers: Readers::new().map_err(failed)?,
            free: Vec::new(),
            allocated: 0,
            limit,
            staged: 0,
            flow: None,
            begun: 0,
            stats: ExpertStats::default(),
        }))
    }

    /// Bytes that the streamed experts of a program take, beside one that may be read beyond them.
    ///
    /// # Errors
    /// As [`Streams::new`].
    pub fn bytes(program: &Program, weights: &Weights) -> Result<u64, PlanError> {
        Ok(streamed_bytes(&banks(program, weights)?, |place| given(program, place)))
    }

    /// The bank whose gate is a weight, if its experts are streamed.
    pub fn bank_of(&self, gate: WeightId) -> Option<usize> {
        self.banks.iter().position(|bank| bank.place.bank.weights[0] == gate)
    }

    /// How they have served.
    pub fn stats(&self) -> ExpertStats {
        self.stats
    }

    /// Counts rows that passed through the whole program.
    pub fn count_rows(&mut self, rows: usize) {
        self.stats.rows += rows as u64;
    }

    /// Whether a layer is begun and not over.
    pub fn has_begun(&self, bank: usize) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.bank == bank)
    }

    /// Begins a layer: `uses` are its experts with how many rows use each, those of one expert as neighbours. Reads begin
    /// at once.
    pub fn begin(&mut self, bank: usize, uses: &[(usize, usize)]) {
        self.abort();
        let mut needed: Vec<(usize, usize)> = Vec::new();
        for (expert, rows) in uses {
            match needed.last_mut() {
                Some((last, sum)) if last == expert => *sum += rows,
                _ => needed.push((*expert, *rows)),
            }
        }
        self.review();
        let rows: usize = needed.iter().map(|(_, rows)| rows).sum();
        let Bank { place, slots, .. } = &mut self.banks[bank];
        slots.begin((rows / place.bank.top_k.max(1)) as u64);
        let (mut ready, mut waiting) = (Vec::new(), VecDeque::new());
        for (expert, rows) in &needed {
            match slots.uses(*expert, *rows) {
                Some(held) => ready.push((*expert, held)),
                None => waiting.push_back(*expert),
            }
        }
        slots.misses += waiting.len() as u64;
        self.stats.requests += needed.len() as u64;
        self.stats.hits += ready.len() as u64;
        self.flow = Some(Flow { bank, ready, waiting, reading: BTreeMap::new(), in_flight: 0 });
        self.pump();
    }

    /// The next experts of the layer: those that are there, else the first that come; none when all were handed out.
    ///
    /// # Errors
    /// If one could not be read. The layer's run is over then.
    pub fn arrivals(&mut self) -> Result<Vec<Arrived>, WeightsError> {
        self.pump();
        while let Some(flow) = &mut self.flow {
            if !flow.ready.is_empty() {
                return Ok(std::mem::take(&mut flow.ready));
            }
            if flow.in_flight == 0 {
                debug_assert!(flow.waiting.is_empty(), "an expert can always be read when none is in use");
                break;
            }
            let done = match self.readers.poll() {
                Some(done) => done,
                None => {
                    let since = Instant::now();
                    let done = self.readers.wait();
                    self.stats.exposed += since.elapsed();
                    done
                }
            };
            if let Err(error) = self.take(done) {
                self.abort();
                return Err(error);
            }
            while let Some(done) = self.readers.poll() {
                if let Err(error) = self.take(done) {
                    self.abort();
                    return Err(error);
                }
            }
        }
        self.flow = None;
        Ok(Vec::new())
    }

    /// Takes experts back that were computed with.
    pub fn done(&mut self, experts: Vec<Arrived>) {
        let Some(bank) = self.flow.as_ref().map(|flow| flow.bank) else { return };
        for (expert, held) in experts {
            if !self.banks[bank].slots.holds(expert) {
                self.staged -= 1;
                let left = self.banks[bank].slots.offer(expert, held);
                self.recycle(left);
            }
        }
        self.pump();
    }

    /// Ends a layer whose run failed: waits for what is being read, and keeps none of it.
    pub fn abort(&mut self) {
        let Some(mut flow) = self.flow.take() else { return };
        while flow.in_flight > 0 {
            let done = self.readers.wait();
            flow.in_flight -= 1;
            if let Some(reading) = flow.reading.get_mut(&done.expert) {
                reading.buffers[done.read] = Some(done.pages);
            }
        }
        for reading in std::mem::take(&mut flow.reading).into_values() {
            self.allocated -= self.banks[flow.bank].made;
            self.free.push(reading.buffers.into_iter().flatten().collect());
            self.staged -= 1;
        }
        // What was read and not handed out is whole, but belongs to a run that is over.
        for (expert, held) in flow.ready {
            if !self.banks[flow.bank].slots.holds(expert) {
                self.staged -= 1;
                self.recycle(Some(held));
            }
        }
    }

    /// Starts as many reads as there are places for.
    fn pump(&mut self) {
        while let Some(flow) = &self.flow {
            let bank = flow.bank;
            let Some(expert) = flow.waiting.front().copied() else { return };
            let Some(buffers) = self.buffers_for(bank) else { return };
            self.staged += 1;
            let Some(flow) = &mut self.flow else { return };
            flow.waiting.pop_front();
            let place = &self.banks[bank].place.experts[expert];
            let mut reading = Reading { left: place.reads.len(), buffers: Vec::new(), starts: vec![0; buffers.len()] };
            for (read, pages) in buffers.into_iter().enumerate() {
                let Some(range) = place.reads.get(read) else {
                    reading.buffers.push(Some(pages));
                    continue;
                };
                reading.buffers.push(None);
                flow.in_flight += 1;
                self.stats.bytes_read += range.bytes as u64;
                let file = self.files[&range.path].clone();
                self.readers.start(Job { file, range: range.clone(), pages, expert, read });
            }
            flow.reading.insert(expert, reading);
        }
    }

    /// One read is over; its expert is ready when all of its reads are.
    fn take(&mut self, done: Done) -> Result<(), WeightsError> {
        let Some(flow) = &mut self.flow else { return Ok(()) };
        flow.in_flight -= 1;
        let Some(reading) = flow.reading.get_mut(&done.expert) else { return Ok(()) };
        reading.buffers[done.read] = Some(done.pages);
        reading.starts[done.read] = done.result?;
        reading.left -= 1;
        if reading.left > 0 {
            return Ok(());
        }
        let Some(reading) = flow.reading.remove(&done.expert) else { return Ok(()) };
        let buffers: Vec<_> = reading.buffers.into_iter().flatten().collect();
        let place = &self.banks[flow.bank].place;
        match parts(&place.experts[done.expert], &buffers, &reading.starts) {
            Ok(parts) => {
                let mut held = Held { buffers, parts };
                let made = held.made_bytes();
                if !place.keeps_buffers() {
                    self.free.push(std::mem::take(&mut held.buffers));
                }
                flow.ready.push((done.expert, Arc::new(held)));
                self.allocated = self.allocated - self.banks[flow.bank].made + made;
                self.stats.peak_bytes = self.stats.peak_bytes.max(self.allocated);
                Ok(())
            }
            Err(error) => {
                self.free.push(buffers);
                self.allocated -= self.banks[flow.bank].made;
                self.staged -= 1;
                Err(error)
            }
        }
    }

    /// Buffers for one more expert of a bank, if there is room or nothing else is outside the slots.
    fn buffers_for(&mut self, bank: usize) -> Option<Vec<Pages>> {
        let Bank { buffers: sizes, made, .. } = &self.banks[bank];
        let fits = |set: &Vec<Pages>| set.iter().map(|pages| pages.bytes().len()).eq(sizes.iter().copied());
        let there = self.free.iter().position(fits);
        let there = there.map(|at| self.free.swap_remove(at));
        let fresh = if there.is_some() { 0 } else { sizes.iter().sum::<usize>() as u64 };
        let needed = fresh + made;
        // What nobody uses makes way, then experts that a layer has beyond its share.
        while self.allocated + needed > self.limit {
            if let Some(set) = self.free.pop() {
                self.allocated -= bytes_of(&set);
            } else if let Some(excess) = self.banks.iter_mut().find_map(|bank| bank.slots.give_up()) {
                self.recycle(Some(excess));
            } else {
                break;
            }
        }
        // One expert may be beyond the limit, and only alone.
        if self.allocated + needed > self.limit && self.staged > 0 {
            self.free.extend(there);
            return None;
        }
        self.allocated += needed;
        self.stats.peak_bytes = self.stats.peak_bytes.max(self.allocated);
        Some(there.unwrap_or_else(|| self.banks[bank].buffers.iter().map(|bytes| Pages::new(*bytes)).collect()))
    }

    /// Buffers of an expert that nobody uses any more.
    fn recycle(&mut self, expert: Option<Arc<Held>>) {
        let Some(held) = expert.and_then(Arc::into_inner) else { return };
        self.allocated -= held.made_bytes();
        if !held.buffers.is_empty() {
            self.free.push(held.buffers);
        }
    }

    /// From time to time, a layer that misses little gives a slot to the one that misses most.
    fn review(&mut self) {
        self.begun += 1;
        if !self.begun.is_multiple_of(REVIEW * self.banks.len() as u64) || self.banks.len() < 2 {
            return;
        }
        let misses = |(_, bank): &(usize, &Bank)| bank.slots.misses;
        let all = || self.banks.iter().enumerate();
        let wants = all().filter(|(_, b)| b.slots.share < b.place.bank.experts).max_by_key(misses);
        let gives = all().filter(|(_, b)| b.slots.share > 1).min_by_key(misses);
        if let (Some((to, wants)), Some((from, gives))) = (wants, gives) {
            let apart = wants.slots.misses > 2 * gives.slots.misses + REVIEW / 4;
            if to != from && apart && gives.place.slot >= wants.place.slot {
                self.banks[from].slots.share -= 1;
                self.banks[to].slots.share += 1;
            }
        }
        self.banks.iter_mut().for_each(|bank| bank.slots.misses /= 2);
    }
}

fn bytes_of(set: &[Pages]) -> u64 {
    set.iter().map(|pages| pages.bytes().len() as u64).sum()
}

/// An expert's matrices in what was read of it.
fn parts(place: &ExpertPlace, buffers: &[Pages], starts: &[usize]) -> Result<[Part; 3], WeightsError> {
    let part = |place: &PartPlace| match place {
        PartPlace::AsStored { dtype, rows, cols, at } => Ok(Part::Stored {
            dtype: *dtype,
            rows: *rows,
            cols: *cols,
            buffer: at.read,
            start: starts[at.read] + at.bytes.start,
            bytes: at.bytes.len(),
        }),
        PartPlace::Made { matrix, tensors, .. } => {
            let read = tensors.iter().map(|(tensor, at)| {
                let bytes = &buffers[at.read].bytes()[starts[at.read]..][at.bytes.clone()];
                Tensor::from_bytes(tensor.name(), tensor.dtype(), tensor.shape().to_vec(), bytes.to_vec())
            });
            Ok(Part::Made(matrix.made_of(read.collect::<Result<Weights, _>>()?)?))
        }
    };
    let [gate, up, down] = &place.parts;
    Ok([part(gate)?, part(up)?, part(down)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::{Residency, lower};
    use testkit::{Model, Random, golden};
    use weights::io::Disk;

    fn streams(slots: usize) -> Streams {
        let model = Model::open(&golden("qwen3_moe").join("model.safetensors"));
        let mut program = lower(&model.spec, &model.index).unwrap_or_else(|e| panic!("{e}"));
        for bank in program.banks() {
            program.keep_experts(&bank, Residency::Streamed { slots });
        }
        Streams::new(&program, &model.weights, &Disk).unwrap_or_else(|e| panic!("{e}")).expect("experts")
    }

    /// Goes through a layer; how many of the experts were in memory.
    fn layer(streams: &mut Streams, bank: usize, experts: &[usize]) -> u64 {
        let before = streams.stats().hits;
        let uses: Vec<_> = experts.iter().map(|expert| (*expert, 1)).collect();
        streams.begin(bank, &uses);
        let mut seen = Vec::new();
        loop {
            let arrived = streams.arrivals().unwrap_or_else(|e| panic!("{e}"));
            if arrived.is_empty() {
                break;
            }
            seen.extend(arrived.iter().map(|(expert, _)| *expert));
            streams.done(arrived);
        }
        seen.sort_unstable();
        assert_eq!(seen, experts, "each expert comes once");
        streams.stats().hits - before
    }

    /// What is used most stays, whatever passes by.
    #[test]
    fn the_most_used_stay() {
        let mut streams = streams(2);
        (0..3).for_each(|_| assert!(layer(&mut streams, 0, &[1, 6]) <= 2));
        for passing in [0, 2, 3, 4] {
            layer(&mut streams, 0, &[passing]);
        }
        assert_eq!(layer(&mut streams, 0, &[1, 6]), 2);
    }

    /// A layer that misses little gives slots to one that misses much; there are as many as before, and one stays.
    #[test]
    fn shares_go_where_reads_are() {
        let mut streams = streams(3);
        let shares = |streams: &Streams| streams.banks.iter().map(|bank| bank.slots.share).collect::<Vec<_>>();
        assert_eq!(shares(&streams), [3; 4]);
        let mut random = Random::new(4);
        for _ in 0..8 * REVIEW {
            for bank in 0..3 {
                layer(&mut streams, bank, &[5]);
            }
            layer(&mut streams, 3, &[random.below(8)]);
        }
        let found = shares(&streams);
        assert_eq!(found.iter().sum::<usize>(), 12, "{found:?}");
        assert!(found[3] > 3 && found.iter().all(|share| *share > 0), "{found:?}");
        assert!(streams.allocated <= streams.limit + streams.banks[0].place.staged(), "{found:?}");
    }
}
