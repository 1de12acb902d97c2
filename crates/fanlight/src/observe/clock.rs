//! Times of day.

/// The time of day in UTC of milliseconds since 1970: what is shown is at most some hours old.
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
