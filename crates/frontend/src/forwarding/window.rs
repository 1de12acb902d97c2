//! One sender's numbers, each valid once. The sender counts upwards, and the numbers arrive nearly
//! in order.

/// How far a number may be behind the highest one. A constant: a sender has far fewer requests in
/// flight.
const SPAN: u64 = 1 << 14;
const WORD: u64 = u64::BITS as u64;

/// The used numbers of one sender.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The highest number so far.
    highest: u64,
    /// One bit for each of the last [`SPAN`] numbers, by the number modulo [`SPAN`]; empty before
    /// the first.
    used: Vec<u64>,
}

impl Window {
    /// Uses `number`; false if it has been used, or is too old to tell. Numbers begin at 1.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        self.used
            .resize(usize::try_from(SPAN / WORD).unwrap_or_default(), 0);
        if number > self.highest {
            self.forget_between(self.highest, number);
            self.highest = number;
        } else if self.highest - number >= SPAN || number == 0 {
            return false;
        }
        let (word, bit) = place(number);
        let Some(word) = self.used.get_mut(word) else {
            return false;
        };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Makes room for the numbers after `highest`, up to `number`.
    fn forget_between(&mut self, highest: u64, number: u64) {
        if number - highest >= SPAN {
            return self.used.fill(0);
        }
        for (word, bit) in (highest + 1..=number).map(place) {
            if let Some(word) = self.used.get_mut(word) {
                *word &= !bit;
            }
        }
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % SPAN;
    (
        usize::try_from(at / WORD).unwrap_or(usize::MAX),
        1 << (at % WORD),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn number_is_good_once_and_not_when_it_is_too_old() {
        let mut window = Window::default();
        assert!(!window.take(0) && window.take(1) && !window.take(1));
        assert!(
            window.take(SPAN + 5)
                && window.take(6)
                && !window.take(6)
                && !window.take(5)
                && !window.take(1)
        );
        assert!(window.take(u64::MAX) && !window.take(u64::MAX) && window.take(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn no_number_is_good_twice(numbers in prop::collection::vec(prop_oneof![1..200u64, 1..3 * SPAN], 0..400)) {
            let (mut window, mut used, mut highest) = (Window::default(), BTreeSet::new(), 0);
            for number in numbers {
                highest = highest.max(number);
                let expected = highest - number < SPAN && used.insert(number);
                prop_assert_eq!(window.take(number), expected, "{}", number);
            }
        }
    }
}
