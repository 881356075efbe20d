//! Where the template engine and Python differ: how values are written, methods, tests and filters.

mod filters;
mod methods;
mod text;

pub(crate) use text::write_float;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use minijinja_contrib::globals::{cycler, joiner};

/// Makes `environment` behave as Jinja2 in Python does.
pub(crate) fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, state, value| match text::differing(state, value)? {
        Some(text) => out.write_str(&text).map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    });
    filters::install(environment);
    environment.add_function("cycler", |items: Rest<Value>| cycler(items.0));
    environment.add_function("joiner", joiner);
    // The engine would call `none` iterable, and texts and mappings no sequences.
    environment
        .add_test("iterable", |value: &Value| value.is_undefined() || (!value.is_none() && value.try_iter().is_ok()));
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Undefined)
    });
    environment.add_test("callable", |value: &Value| matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined));
}

/// Arguments by position or by name, in the order of `names`, as a Python function takes them.
pub(crate) fn bind<const N: usize>(
    positional: &[Value],
    named: &Kwargs,
    names: [&str; N],
) -> Result<[Option<Value>; N], Error> {
    if positional.len() > N {
        let what = format!("{} are given, but only these are taken: {}", positional.len(), names.join(", "));
        return Err(Error::new(ErrorKind::TooManyArguments, what));
    }
    let mut bound = [const { None }; N];
    for (at, (slot, name)) in bound.iter_mut().zip(names).enumerate() {
        *slot = match positional.get(at) {
            Some(value) => Some(value.clone()),
            None => named.get::<Option<Value>>(name)?,
        };
    }
    named.assert_all_used()?;
    Ok(bound)
}

/// A number of characters, such as a width.
pub(crate) fn count(value: &Value, what: &str) -> Result<usize, Error> {
    let whole = value.as_i64().or_else(|| value.is_true().then_some(1));
    let whole =
        whole.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, format!("{what} is not a whole number")))?;
    Ok(usize::try_from(whole).unwrap_or(0))
}
