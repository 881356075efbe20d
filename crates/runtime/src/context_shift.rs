//! Room for a conversation that outgrew its context: the oldest whole turns are left out.
//!
//! Nothing in the cache is moved or renumbered. What is left of the conversation is rendered anew and is a prompt like any
//! other, fed from where it departs from the last one, so that the logits are those of that prompt for every family. Raw
//! text has no turns to leave out, and a text without its beginning is another text; nothing is offered for it.

use crate::RuntimeError;
use foundation::TokenId;
use tokenizer::Message;

/// How much of a conversation is left out. It belongs to one conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextShift {
    /// Turns from the first.
    left_out: usize,
}

/// The space a prompt has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptRoom {
    /// Positions of the context.
    pub context: usize,
    /// Tokens the answer may take. Where that is open, a quarter of the context is kept for it as far as that is possible.
    pub new: Option<usize>,
}

/// A prompt that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shifted {
    /// The prompt.
    pub prompt: Vec<TokenId>,
    /// Turns that are left out from now on.
    pub newly_left_out: usize,
}

impl ContextShift {
    /// Turns left out so far, counted from the first.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// A prompt of the conversation that leaves room for the answer. A turn is a message of the user with all that
    /// follows it up to the next one. What stands before the first turn stays, and so does the last turn.
    ///
    /// Where turns must go, they go until the prompt takes at most half of the context, so that the prompts to come can go
    /// on from this one.
    ///
    /// # Errors
    /// The last turn alone does not fit; what `tokens` refuses.
    pub fn fit(
        &mut self,
        messages: &[Message],
        room: PromptRoom,
        tokens: impl Fn(&[Message]) -> Result<Vec<TokenId>, RuntimeError>,
    ) -> Result<Shifted, RuntimeError> {
        let turns: Vec<usize> = (0..messages.len()).filter(|at| messages[*at].role == "user").collect();
        let without = |left_out: usize| {
            let [head, rest] = [turns.first(), turns.get(left_out)].map(|at| at.copied().unwrap_or(messages.len()));
            tokens(&[&messages[..head], &messages[rest..]].concat())
        };
        let (last, before) = (turns.len().saturating_sub(1), self.left_out.min(turns.len().saturating_sub(1)));
        let PromptRoom { context, new } = room;
        let most = context.saturating_sub(new.unwrap_or(context / 4));
        let mut prompt = without(before)?;
        let mut left_out = before;
        if prompt.len() > most {
            while left_out < last && prompt.len() > most.min(context / 2) {
                left_out += 1;
                prompt = without(left_out)?;
            }
        }
        let needed = new.unwrap_or(1);
        if prompt.len().saturating_add(needed) > context {
            return Err(RuntimeError::LastTurnTooLong { prompt: prompt.len(), new: needed, context });
        }
        self.left_out = left_out;
        Ok(Shifted { prompt, newly_left_out: left_out - before })
    }
}
