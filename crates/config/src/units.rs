//! Durations and sizes in the config file's notation: parsing and formatting.

use std::time::Duration;

const DURATION_UNITS: &[(&str, Duration)] = &[
    ("ms", Duration::from_millis(1)),
    ("s", Duration::from_secs(1)),
    ("m", Duration::from_secs(60)),
    ("h", Duration::from_secs(3600)),
    ("d", Duration::from_secs(86_400)),
];

const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// Parses `500ms`, `30s`, `1m30s`, `1.5h`, or plain seconds. `None` for anything else and for more
/// than `u64` seconds.
///
/// humantime would not do: it takes spaces and words, and neither fractions nor plain numbers.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if let Some((seconds, "")) = split_amount(text) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (amount, after) = split_amount(rest)?;
        let end = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, tail) = after.split_at(end);
        let (_, unit) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
        total =
            total.checked_add(Duration::try_from_secs_f64(amount * unit.as_secs_f64()).ok()?)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// Parses `16MiB`, `64KiB`, `1MB`, or plain bytes; the case of the unit does not matter.
pub fn parse_size(text: &str) -> Option<usize> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (amount, unit) = text.split_at(digits);
    let amount: u64 = amount.parse().ok()?;
    let unit = unit.trim_start();
    if unit.is_empty() {
        return (digits == text.len()).then(|| usize::try_from(amount).ok())?;
    }
    let (_, factor) = SIZE_UNITS
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    usize::try_from(amount.checked_mul(*factor)?).ok()
}

/// Parses decimal digits.
pub(crate) fn parse_count(text: &str) -> Option<usize> {
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| text.parse().ok())?
}

/// The shortest exact form in one unit.
pub(crate) fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    DURATION_UNITS
        .iter()
        .rev()
        .find(|(_, unit)| millis != 0 && millis.is_multiple_of(unit.as_millis()))
        .map_or_else(
            || format!("{}s", duration.as_secs_f64()),
            |(name, unit)| format!("{}{name}", millis / unit.as_millis()),
        )
}

/// The size in the largest binary unit that is exact, or in plain bytes.
pub(crate) fn format_size(bytes: usize) -> String {
    let bytes = bytes as u64;
    SIZE_UNITS
        .iter()
        .rev()
        .find(|(name, factor)| name.ends_with("iB") && bytes != 0 && bytes.is_multiple_of(*factor))
        .map_or_else(
            || bytes.to_string(),
            |(name, factor)| format!("{}{name}", bytes / factor),
        )
}

/// The decimal number at the start of a text, and the rest.
fn split_amount(text: &str) -> Option<(f64, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let is_decimal = !number.starts_with('.') && !number.ends_with('.');
    is_decimal.then(|| Some((number.parse().ok()?, rest)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("0.25", 250),
            ("30", 30_000),
            ("0", 0),
        ] {
            let expected = Some(Duration::from_millis(millis));
            assert_eq!(parse_duration(text), expected, "{text}");
        }
        for text in [
            "", "s", "5x", "-5s", "5 s", "5.", ".5", "1.2.3s", "5s5", "1e3", "ms5", "五s",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert_eq!(parse_duration(&format!("{}d", u64::MAX)), None);
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("17B", 17),
            ("1MB", 1_000_000),
            ("64KiB", 65_536),
            ("16 mib", 16 << 20),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "MiB", "1.5MiB", "16M", "-1", "1 ", "99999999999GiB"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn formatted_values_are_read_back() {
        for millis in [1, 500, 1500, 30_000, 90_000, 3_600_000, 86_400_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }
        assert_eq!(format_duration(Duration::from_secs(300)), "5m");
        assert_eq!(format_duration(Duration::ZERO), "0s");
        assert_eq!(format_size(16 << 20), "16MiB");
        assert_eq!(format_size(1000), "1000");
    }
}
