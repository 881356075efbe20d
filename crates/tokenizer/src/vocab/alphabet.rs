//! The printable stand-ins that byte-level vocabularies use for the 256 byte values.

/// The character that stands for `byte` in a byte-level vocabulary.
pub(crate) fn letter(byte: u8) -> char {
    let code = match byte {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => u32::from(byte),
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7F..=0xA0 => 0x121 + u32::from(byte) - 0x7F,
        0xAD => 0x143,
    };
    char::from_u32(code).expect("the stand-ins are characters")
}

/// The byte that `letter` stands for, if it stands for one.
pub(crate) fn byte(letter: char) -> Option<u8> {
    let code = u32::from(letter);
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

/// The bytes that a piece of a byte-level vocabulary stands for; its own UTF-8 if it uses other characters.
pub(crate) fn bytes(piece: &str) -> Vec<u8> {
    piece.chars().map(byte).collect::<Option<Vec<u8>>>().unwrap_or_else(|| piece.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_letter() {
        for value in 0..=255 {
            assert_eq!(byte(letter(value)), Some(value));
        }
        assert_eq!(bytes("Ġhe"), b" he");
        assert_eq!(bytes("｜"), "｜".as_bytes());
    }
}
