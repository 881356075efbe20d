//! Values of flags.

use foundation::TokenId;
use runtime::{DeviceKind, KvChoice, RuntimeError};
use selection::{Shaping, ShapingError, ShapingOptions};
use std::str::FromStr;
use weights::DType;
use weights::gturbo::Verify;

/// A whole number of at least 1.
pub(crate) fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number of at least 1".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// A rate above zero.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected a number of tokens a second above 0".to_owned())
}

/// A number of bytes, with a unit or without: `4GiB`, `512MiB`, `1.5GB`, `1000000`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, f64); 9] = [
        ("KIB", 1024.0),
        ("MIB", 1048576.0),
        ("GIB", 1073741824.0),
        ("TIB", 1099511627776.0),
        ("KB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("B", 1.0),
    ];
    let upper = text.trim().to_ascii_uppercase();
    let unit = UNITS.iter().find(|(unit, _)| upper.ends_with(unit));
    let (number, scale) = match unit {
        Some((unit, scale)) => (upper[..upper.len() - unit.len()].trim_end(), *scale),
        None => (upper.as_str(), 1.0),
    };
    let bytes = number.parse::<f64>().ok().map(|n| n * scale).filter(|b| (1.0..1e18).contains(b));
    bytes.map(|b| b as u64).ok_or_else(|| "expected a size such as 4GiB, 512MiB or 1000000000".to_owned())
}

/// A number of bytes, or 0 for `off`.
pub(crate) fn bytes_or_off(text: &str) -> Result<u64, String> {
    if text == "off" { Ok(0) } else { bytes(text).map_err(|reason| format!("{reason}, or off")) }
}

/// The name of a device.
pub(crate) fn device(text: &str) -> Result<DeviceKind, String> {
    text.parse().map_err(|error: RuntimeError| error.to_string())
}

/// Types of cached keys and values.
pub(crate) fn kv(text: &str) -> Result<KvChoice, String> {
    match text.strip_prefix("auto:") {
        Some(size) => bytes(size).map(KvChoice::Auto),
        None => text.parse().map(KvChoice::Plan),
    }
}

/// A type that weights can be rounded to.
pub(crate) fn quantize(text: &str) -> Result<DType, String> {
    let known = DType::QUANTISERS.into_iter();
    known.clone().find(|dtype| dtype.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
        let known: Vec<_> = known.map(|dtype| dtype.name().to_ascii_lowercase()).collect();
        format!("this version rounds to {}", known.join(", "))
    })
}

/// What is checked of a packed model.
pub(crate) fn verify(text: &str) -> Result<Verify, String> {
    match text {
        "full" => Ok(Verify::Full),
        "size" => Ok(Verify::Size),
        "off" => Ok(Verify::Off),
        _ => Err("expected full, size or off".to_owned()),
    }
}

/// A value that the runtime reads and explains.
pub(crate) fn one_of_ours<T: FromStr<Err = RuntimeError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| match error {
        RuntimeError::BadValue { reason, .. } => reason,
        other => other.to_string(),
    })
}

/// A finite number of at least 0.
pub(crate) fn threshold(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|x: &f32| x.is_finite() && *x >= 0.0);
    number.ok_or_else(|| "expected a number of at least 0".to_owned())
}

/// A text that ends an answer.
pub(crate) fn stop_text(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("an empty text would end every answer at once".to_owned()) } else { Ok(text.to_owned()) }
}

/// A sampling value, checked by the sampler's own rules.
pub(crate) fn shaping(
    with: impl Fn(f32) -> ShapingOptions + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<f32, String> + Clone + Send + Sync + 'static {
    move |text| {
        let value: f32 = text.parse().map_err(|_| "expected a number".to_owned())?;
        match Shaping::new(with(value)) {
            Ok(_) => Ok(value),
            Err(ShapingError::OutOfRange { allowed, .. }) => Err(format!("it must be {allowed}")),
            Err(other) => Err(other.to_string()),
        }
    }
}

/// Token ids, separated by commas.
#[derive(Clone, Debug)]
pub(crate) struct Tokens(pub(crate) Vec<TokenId>);

impl std::str::FromStr for Tokens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ids: Result<Vec<_>, _> = text.split(',').map(|id| id.trim().parse().map(TokenId)).collect();
        ids.map(Self).map_err(|_| "expected token ids separated by commas, such as 1,2,3".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("4GiB", Some(4 << 30)),
            ("512 MiB", Some(512 << 20)),
            ("1.5gb", Some(1_500_000_000)),
            ("1000", Some(1000)),
            ("7B", Some(7)),
            ("0", None),
            ("-1GiB", None),
            ("GiB", None),
            ("12 parsecs", None),
            ("nan", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
    }
}
