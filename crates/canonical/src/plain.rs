//! Durations as people read them.

use std::fmt;
use std::time::Duration;

/// A duration in plain units, only as exact as a person needs: `0.4 s`, `12 s`, `5 min`, `2 h 10
/// min`.
#[derive(Clone, Copy, Debug)]
pub struct Plain(pub Duration);

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 9.95 {
            return write!(f, "{seconds:.1} s");
        }
        let whole = seconds.round() as u64;
        if whole < 120 {
            return write!(f, "{whole} s");
        }
        let minutes = whole / 60;
        match (minutes / 60, minutes % 60) {
            (0, minutes) => write!(f, "{minutes} min"),
            (hours, 0) => write!(f, "{hours} h"),
            (hours, minutes) => write!(f, "{hours} h {minutes} min"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_as_exact_as_matters() {
        for (millis, text) in [
            (0, "0.0 s"),
            (412, "0.4 s"),
            (9_949, "9.9 s"),
            (9_951, "10 s"),
            (119_400, "119 s"),
            (119_600, "2 min"),
            (3_599_000, "59 min"),
            (3_600_000, "1 h"),
            (7_800_000, "2 h 10 min"),
        ] {
            assert_eq!(Plain(Duration::from_millis(millis)).to_string(), text);
        }
    }
}
