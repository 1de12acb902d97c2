//! Times of day.

/// The time of day in UTC, from milliseconds since 1970. No date is needed, since the shown data is
/// at most some hours old.
pub(super) fn clock(millis: f64) -> String {
    let millis = millis.max(0.0) as u64;
    let (seconds, rest) = (millis / 1000, millis % 1000);
    format!(
        "{:02}:{:02}:{:02}.{rest:03}Z",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
}
