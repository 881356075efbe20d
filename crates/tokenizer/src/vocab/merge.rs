//! Merging neighbouring symbols best-first, in O(n log n).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A stretch of the text being encoded; `id` is its token, if the vocabulary has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) start: u32,
    pub(crate) len: u32,
    pub(crate) id: Option<u32>,
}

/// A merge that the vocabulary allows: lower priorities go first, then the leftmost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merge {
    pub(crate) priority: u32,
    pub(crate) id: u32,
}

/// Reusable memory of [`merge`].
#[derive(Default)]
pub(crate) struct Scratch {
    previous: Vec<u32>,
    next: Vec<u32>,
    queue: BinaryHeap<Reverse<Candidate>>,
}

/// Priority, left symbol, right symbol, joint length, token: compared in this order.
type Candidate = (u32, u32, u32, u32, u32);

const NONE: u32 = u32::MAX;

/// Merges `symbols` in place until `join` allows no more; absorbed symbols are removed.
pub(crate) fn merge(symbols: &mut Vec<Symbol>, scratch: &mut Scratch, join: impl Fn(Symbol, Symbol) -> Option<Merge>) {
    let count = u32::try_from(symbols.len()).expect("a text is smaller than 4 GiB");
    let Scratch { previous, next, queue } = scratch;
    previous.clear();
    previous.extend((0..count).map(|i| i.wrapping_sub(1)));
    next.clear();
    next.extend((0..count).map(|i| if i + 1 < count { i + 1 } else { NONE }));
    queue.clear();
    let offer = |queue: &mut BinaryHeap<_>, symbols: &[Symbol], left: u32, right: u32| {
        if left == NONE || right == NONE {
            return;
        }
        let (a, b) = (symbols[left as usize], symbols[right as usize]);
        if let Some(merge) = join(a, b) {
            queue.push(Reverse((merge.priority, left, right, a.len + b.len, merge.id)));
        }
    };
    for left in 1..count {
        offer(queue, symbols, left - 1, left);
    }
    while let Some(Reverse((_, left, right, len, id))) = queue.pop() {
        let (a, b) = (symbols[left as usize], symbols[right as usize]);
        // An absorbed symbol has length 0; a grown one changes the sum: both make the entry stale.
        if a.len == 0 || b.len == 0 || a.len + b.len != len {
            continue;
        }
        symbols[left as usize] = Symbol { start: a.start, len, id: Some(id) };
        symbols[right as usize].len = 0;
        let after = next[right as usize];
        next[left as usize] = after;
        if after != NONE {
            previous[after as usize] = left;
        }
        offer(queue, symbols, previous[left as usize], left);
        offer(queue, symbols, left, after);
    }
    symbols.retain(|symbol| symbol.len > 0);
}
