//! Chat templates: Jinja2 as Hugging Face's `transformers` sets it up, within limits of time and memory.

mod json;
mod messages;
mod python;
mod source;
mod time;

pub use time::CivilTime;

use crate::chat::ChatRequest;
use crate::error::TemplateError;
use crate::guard::{Guard, unmark};
use messages::{Marking, Shape};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

/// Steps of a render: one an operation, and one for 64 bytes of text handled.
const STEPS: u64 = 1_000_000;
/// Bytes of output beside what the input explains.
const OUTPUT: usize = 1 << 20;
/// Nested calls of macros; a call needs several KiB of stack.
const DEPTH: usize = 64;
const NAME: &str = "chat_template";

/// A compiled chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    shape: Shape,
}

/// The template called `raise_exception`.
#[derive(Debug)]
struct Refusal(String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl ChatTemplate {
    /// Compiles a template, and finds out by trial in which shape it expects the messages of tool calls.
    pub fn new(source: &str) -> Result<Self, TemplateError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| syntax_error(&error))?);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(DEPTH);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Refusal(message)))
        });
        python::install(&mut environment);
        json::install(&mut environment);
        let source = source::prepare(source)?;
        contained(|| environment.add_template_owned(NAME, source))?.map_err(|error| syntax_error(&error))?;
        let mut template = Self { environment, shape: Shape::default() };
        template.shape = Shape::probe(&template);
        Ok(template)
    }

    /// The prompt for a conversation.
    pub fn render(&self, request: &ChatRequest) -> Result<String, TemplateError> {
        self.run(request, self.shape, &Marking::Off)
    }

    /// The prompt with marks inside the control tokens that text from outside the template spells.
    pub(crate) fn render_guarded(&self, request: &ChatRequest, guard: &Guard<'_>) -> Result<String, TemplateError> {
        self.run(request, self.shape, &Marking::On(guard))
    }

    fn run(&self, request: &ChatRequest, shape: Shape, marking: &Marking<'_>) -> Result<String, TemplateError> {
        let (context, size) = messages::context(request, shape, marking)?;
        let steps = STEPS + size as u64;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(steps));
        let now = request.now;
        environment.add_function("strftime_now", move |format: &str| match now {
            Some(now) => now.format(format),
            None => Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: the request gives no time")),
        });
        let template = environment.get_template(NAME).map_err(|error| syntax_error(&error))?;
        let text = contained(|| template.render(context))?.map_err(|error| render_error(&error, steps))?;
        let limit = OUTPUT + size.saturating_mul(4);
        if text.len() > limit {
            return Err(TemplateError::TooLong { bytes: text.len(), limit });
        }
        Ok(text)
    }
}

/// A template is a program of strangers: what it may find wrong in the engine must not end more than its own render.
fn contained<T>(run: impl FnOnce() -> T) -> Result<T, TemplateError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).map_err(|_| TemplateError::Render {
        message: "the template engine gave up on it; this is a fault of the engine, to be reported with the template"
            .into(),
    })
}

fn syntax_error(error: &Error) -> TemplateError {
    TemplateError::Syntax { message: error.to_string() }
}

fn render_error(error: &Error, steps: u64) -> TemplateError {
    let clean = |message: &str| {
        let mut out = String::new();
        unmark(message, &mut out);
        out
    };
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(Refusal(message)) = current.downcast_ref() {
            return TemplateError::Refused { message: clean(message) };
        }
        if current.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::OutOfFuel) {
            return TemplateError::Endless { steps };
        }
        cause = current.source();
    }
    TemplateError::Render { message: clean(&error.to_string()) }
}
