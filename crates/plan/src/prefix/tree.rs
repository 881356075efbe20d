//! A radix tree over token ids: an edge is a run of tokens, a node a past that something is kept for, or where pasts
//! part.

use super::ContextKey;
use crate::sequences::Snapshot;
use foundation::TokenId;
use std::collections::BTreeMap;

/// A kept state.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) snapshot: Snapshot,
    /// When it was last of use.
    pub(super) used: u64,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    parent: Option<usize>,
    /// Tokens from the parent to here.
    edge: Vec<TokenId>,
    children: Vec<usize>,
    /// Tokens from the root to here.
    pub(super) depth: usize,
    pub(super) held: Option<Held>,
}

/// Nodes by number; freed numbers are used again.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    free: Vec<usize>,
    roots: BTreeMap<ContextKey, usize>,
}

/// Where the known beginning of some tokens ends.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// How many tokens are known.
    pub(super) known: usize,
    /// The last node on the way that holds a state.
    pub(super) held: Option<usize>,
    /// The node at or after the end: all known continuations are below it.
    after: Option<usize>,
}

impl Tree {
    pub(super) fn node(&self, at: usize) -> &Node {
        &self.nodes[at]
    }

    pub(super) fn node_mut(&mut self, at: usize) -> &mut Node {
        &mut self.nodes[at]
    }

    /// All nodes that hold a state.
    pub(super) fn held(&self) -> impl Iterator<Item = (usize, &Held)> {
        self.nodes.iter().enumerate().filter_map(|(at, node)| Some((at, node.held.as_ref()?)))
    }

    /// The key and the tokens that lead to a node.
    pub(super) fn path(&self, mut at: usize) -> (ContextKey, Vec<TokenId>) {
        let mut edges = Vec::new();
        while let Some(parent) = self.nodes[at].parent {
            edges.push(self.nodes[at].edge.as_slice());
            at = parent;
        }
        edges.reverse();
        let key = self.roots.iter().find(|(_, root)| **root == at).map(|(key, _)| key.clone());
        (key.unwrap_or_default(), edges.concat())
    }

    /// Follows tokens as far as they are known.
    pub(super) fn find(&self, key: &ContextKey, tokens: &[TokenId]) -> Found {
        let Some(&root) = self.roots.get(key) else { return Found::default() };
        let mut found = Found { known: 0, held: None, after: Some(root) };
        let mut at = root;
        loop {
            let rest = &tokens[found.known..];
            let Some(child) = self.child(at, rest) else { return found };
            let common = common(&self.nodes[child].edge, rest);
            found.known += common;
            found.after = Some(child);
            if common < self.nodes[child].edge.len() {
                return found;
            }
            at = child;
            if self.nodes[at].held.is_some() {
                found.held = Some(at);
            }
        }
    }

    /// The nodes below the end of what was found, itself included where it lies after that.
    pub(super) fn below(&self, found: &Found) -> impl Iterator<Item = usize> {
        let mut open: Vec<usize> = found.after.into_iter().collect();
        let known = found.known;
        let nodes = std::iter::from_fn(move || {
            let at = open.pop()?;
            open.extend_from_slice(&self.nodes[at].children);
            Some(at)
        });
        nodes.filter(move |at| self.nodes[*at].depth >= known)
    }

    /// The node of these tokens, made if need be.
    pub(super) fn insert(&mut self, key: &ContextKey, tokens: &[TokenId]) -> usize {
        let mut at = match self.roots.get(key) {
            Some(root) => *root,
            None => {
                let root = self.add(Node::default());
                self.roots.insert(key.clone(), root);
                root
            }
        };
        let mut rest = tokens;
        while !rest.is_empty() {
            at = match self.child(at, rest) {
                None => {
                    let depth = self.nodes[at].depth + rest.len();
                    let leaf = self.add(Node { parent: Some(at), edge: rest.to_vec(), depth, ..Node::default() });
                    self.nodes[at].children.push(leaf);
                    return leaf;
                }
                Some(child) => {
                    let common = common(&self.nodes[child].edge, rest);
                    rest = &rest[common..];
                    if common < self.nodes[child].edge.len() { self.split(child, common) } else { child }
                }
            };
        }
        at
    }

    /// Takes a node's state away, with the nodes that then lead to nothing.
    pub(super) fn take(&mut self, at: usize) -> Option<Snapshot> {
        let held = self.nodes[at].held.take()?;
        self.prune(at);
        Some(held.snapshot)
    }

    fn prune(&mut self, mut at: usize) {
        while self.nodes[at].held.is_none() {
            let (parent, children) = (self.nodes[at].parent, self.nodes[at].children.clone());
            match (parent, children.as_slice()) {
                (Some(parent), []) => {
                    self.nodes[parent].children.retain(|child| *child != at);
                    self.remove(at);
                    at = parent;
                }
                (Some(parent), [child]) => {
                    let mut edge = std::mem::take(&mut self.nodes[at].edge);
                    edge.append(&mut self.nodes[*child].edge);
                    (self.nodes[*child].edge, self.nodes[*child].parent) = (edge, Some(parent));
                    let place = self.nodes[parent].children.iter_mut().find(|c| **c == at);
                    place.into_iter().for_each(|place| *place = *child);
                    self.remove(at);
                    return;
                }
                (None, []) => {
                    self.roots.retain(|_, root| *root != at);
                    self.remove(at);
                    return;
                }
                _ => return,
            }
        }
    }

    /// Puts a node `common` tokens after a node's parent and returns it.
    fn split(&mut self, at: usize, common: usize) -> usize {
        let edge = self.nodes[at].edge.split_off(common);
        let before = std::mem::replace(&mut self.nodes[at].edge, edge);
        let (parent, depth) = (self.nodes[at].parent, self.nodes[at].depth - self.nodes[at].edge.len());
        let middle = self.add(Node { parent, edge: before, children: vec![at], depth, held: None });
        self.nodes[at].parent = Some(middle);
        if let Some(parent) = parent {
            let place = self.nodes[parent].children.iter_mut().find(|child| **child == at);
            place.into_iter().for_each(|place| *place = middle);
        }
        middle
    }

    fn child(&self, at: usize, rest: &[TokenId]) -> Option<usize> {
        let first = rest.first()?;
        self.nodes[at].children.iter().copied().find(|child| self.nodes[*child].edge.first() == Some(first))
    }

    fn add(&mut self, node: Node) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.nodes[at] = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    fn remove(&mut self, at: usize) {
        self.nodes[at] = Node::default();
        self.free.push(at);
    }
}

fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
