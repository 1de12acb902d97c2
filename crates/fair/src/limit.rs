//! Limits that are no options. Tests of the program shorten some of them through one variable.

#[cfg(debug_assertions)]
use given::Given;
#[cfg(debug_assertions)]
pub use given::check_limits;

/// The limit called `name`: `value`, unless a test has set another value in `FANLIGHT_TEST_LIMITS`,
/// such as `header=1s,batch=3`. Only builds with debug assertions read that variable.
///
/// # Panics
///
/// With debug assertions: if no limit is called `name`, or if a test has set a value of another
/// type.
#[cfg(debug_assertions)]
pub fn limit<T: Given>(name: &'static str, value: T) -> T {
    given::limit(name, value)
}

/// The limit called `name`, which is `value`.
#[cfg(not(debug_assertions))]
#[inline]
pub const fn limit<T: Copy>(_name: &'static str, value: T) -> T {
    value
}

#[cfg(debug_assertions)]
mod given {
    use std::collections::HashMap;
    use std::env;
    use std::sync::LazyLock;
    use std::time::Duration;

    const VARIABLE: &str = "FANLIGHT_TEST_LIMITS";

    /// The limits that tests of the program shorten.
    const NAMES: &str = include_str!("limits.txt");

    static LIMITS: LazyLock<Result<HashMap<String, String>, String>> =
        LazyLock::new(|| read(&env::var(VARIABLE).unwrap_or_default()));

    /// The type of a limit's value.
    pub trait Given: Copy {
        #[doc(hidden)]
        fn read(text: &str) -> Option<Self>;
    }

    impl Given for Duration {
        fn read(text: &str) -> Option<Self> {
            let (number, unit) = split(text);
            let number = number.parse().ok()?;
            match unit {
                "ms" => Some(Self::from_millis(number)),
                "s" => Some(Self::from_secs(number)),
                "h" => Some(Self::from_secs(number * 3600)),
                _ => None,
            }
        }
    }

    impl Given for usize {
        fn read(text: &str) -> Option<Self> {
            let (number, unit) = split(text);
            let number: Self = number.parse().ok()?;
            match unit {
                "" => Some(number),
                "KiB" => Some(number << 10),
                "MiB" => Some(number << 20),
                _ => None,
            }
        }
    }

    fn split(text: &str) -> (&str, &str) {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        text.split_at(digits)
    }

    fn read(text: &str) -> Result<HashMap<String, String>, String> {
        let pairs = text.split(',').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let wrong = || format!("{VARIABLE}: {pair:?} is not the value of a limit");
            let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
            let is_value = Duration::read(value).is_some() || usize::read(value).is_some();
            if !is_known(name) || !is_value {
                return Err(wrong());
            }
            Ok((name.to_owned(), value.to_owned()))
        });
        pairs.collect()
    }

    fn is_known(name: &str) -> bool {
        NAMES.lines().any(|known| known == name)
    }

    /// Checks the names and values in the variable.
    ///
    /// # Errors
    ///
    /// If no limit has a given name, or if a value cannot be read.
    pub fn check_limits() -> Result<(), String> {
        LIMITS.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    #[expect(
        clippy::panic,
        reason = "a test that sets a wrong value has to fail; releases lack this code"
    )]
    pub(super) fn limit<T: Given>(name: &'static str, value: T) -> T {
        assert!(is_known(name), "{name} is not in the list of limits");
        let given = LIMITS.as_ref().ok().and_then(|limits| limits.get(name));
        given.map_or(value, |text| {
            T::read(text).unwrap_or_else(|| panic!("{VARIABLE}: {name} cannot be {text}"))
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn limits_are_read_by_name_and_unit() {
            let limits = read("header=1s,batch=3,write=20ms,requestMemory=2MiB").unwrap();
            assert_eq!(
                Duration::read(&limits["header"]),
                Some(Duration::from_secs(1))
            );
            assert_eq!(
                Duration::read(&limits["write"]),
                Some(Duration::from_millis(20))
            );
            assert_eq!(usize::read(&limits["batch"]), Some(3));
            assert_eq!(usize::read(&limits["requestMemory"]), Some(2 << 20));
            assert_eq!(read("").unwrap().len(), 0);
        }

        #[test]
        fn unknown_limit_or_value_is_an_error() {
            for wrong in ["no=1s", "header", "header=soon", "header=1s,no=1s"] {
                assert!(read(wrong).is_err(), "{wrong}");
            }
        }
    }
}
