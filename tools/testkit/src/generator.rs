//! Random JSON *text* from a seed, which decoding and encoding would change.
//!
//! Every text is well-formed JSON in one line, so that it can be sent over stdio;
//! [`Generator::with_line_breaks`] adds line breaks between tokens. Object keys are unique after
//! unescaping, since a proxy may refuse duplicates.

use std::fmt::Write as _;

/// Number lexemes, most of which a decoder would change.
const NUMBERS: [&str; 16] = [
    "0",
    "-0",
    "1.0",
    "1E400",
    "-1e-400",
    "0.1e-7",
    "1e+0",
    "0E-0",
    "123456789012345678901234567890",
    "-9223372036854775809",
    "18446744073709551616",
    "9007199254740993",
    "3.141592653589793238462643383279",
    "0.30000000000000004",
    "100e-2",
    "-0.0",
];

/// Parts of strings in forms that an encoder would not write, or that are otherwise easy to get
/// wrong.
const PIECES: [&str; 24] = [
    "a",
    "plain text",
    r"\u0041",
    r"\/",
    "/",
    r"\ud83d\ude00",
    "😀",
    r"\ud800",
    r"\udc00\ud800",
    r"\u0000",
    r"\u001f",
    r"\n",
    r"\r\n",
    r"\t",
    r"\b\f",
    r#"\""#,
    r"\\",
    r"\\u0041",
    "é",
    "e\u{301}",
    "\u{2028}",
    "\u{feff}",
    "data: x",
    "{\\\"id\\\":1}",
];

const SPACES: [&str; 5] = ["", "", " ", "\t", "   "];
const BREAKS: [&str; 4] = ["", " ", "\n", "\r\n\t"];

/// The maximum nesting.
const MAX_DEPTH: usize = 24;

/// A source of random JSON text; one seed always gives the same texts.
pub struct Generator {
    random: fastrand::Rng,
    keys: usize,
    spaces: &'static [&'static str],
}

impl Generator {
    /// A generator of texts in one line.
    pub fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            keys: 0,
            spaces: &SPACES,
        }
    }

    /// A generator that adds line breaks between tokens.
    pub fn with_line_breaks(seed: u64) -> Self {
        Self {
            spaces: &BREAKS,
            ..Self::new(seed)
        }
    }

    /// A random value.
    pub fn value(&mut self) -> String {
        let depth = self.random.usize(0..5);
        self.value_of_depth(depth)
    }

    /// Deeply nested arrays and objects.
    pub fn deep(&mut self) -> String {
        let mut text = self.scalar();
        for _ in 0..MAX_DEPTH {
            text = if self.random.bool() {
                format!("[{text}]")
            } else {
                format!("{{{}:{text}}}", self.key())
            };
        }
        text
    }

    /// An object with a few members.
    pub fn object(&mut self) -> String {
        let members = self.members();
        let (before, after) = (self.space(), self.space());
        format!("{{{before}{members}{after}}}")
    }

    /// Members without braces, at least one, to be combined with other members.
    pub fn members(&mut self) -> String {
        let count = self.random.usize(1..5);
        let members: Vec<String> = (0..count)
            .map(|_| {
                let (key, value) = (self.key(), self.value_of_depth(3));
                let (before, after) = (self.space(), self.space());
                format!("{key}{before}:{after}{value}")
            })
            .collect();
        self.join(&members)
    }

    /// A string, which is sometimes long.
    pub fn string(&mut self) -> String {
        let pieces = if self.random.usize(0..40) == 0 {
            20_000
        } else {
            self.random.usize(0..6)
        };
        let text: String = (0..pieces).map(|_| *self.pick(&PIECES)).collect();
        format!("\"{text}\"")
    }

    /// A JSON-RPC id: a string or an integer, whose text must be kept.
    pub fn id(&mut self) -> String {
        let number = self.random.u32(..);
        match self.random.usize(0..4) {
            0 => number.to_string(),
            1 => format!("-{}", number.saturating_add(1)),
            2 => format!("\"id-{number}\""),
            _ => format!("\"\\u0069\\/{number}\""),
        }
    }

    fn value_of_depth(&mut self, depth: usize) -> String {
        match self.random.usize(0..10) {
            0..=1 if depth > 0 => {
                let elements: Vec<String> = (0..self.random.usize(0..4))
                    .map(|_| self.value_of_depth(depth - 1))
                    .collect();
                let (before, after) = (self.space(), self.space());
                format!("[{before}{}{after}]", self.join(&elements))
            }
            2..=5 if depth > 0 => {
                let (key, value) = (self.key(), self.value_of_depth(depth - 1));
                let (other_key, other_value) = (self.key(), self.scalar());
                let members = self.join(&[
                    format!("{key}:{value}"),
                    format!("{other_key}:{other_value}"),
                ]);
                format!("{{{members}}}")
            }
            _ => self.scalar(),
        }
    }

    fn scalar(&mut self) -> String {
        match self.random.usize(0..8) {
            0 => "null".to_owned(),
            1 => "true".to_owned(),
            2 => "false".to_owned(),
            3..=5 => (*self.pick(&NUMBERS)).to_owned(),
            _ => self.string(),
        }
    }

    /// A member name in quotes. Its number makes it unique; the first name is empty, which is legal
    /// too.
    fn key(&mut self) -> String {
        self.keys += 1;
        let number = self.keys;
        if number == 1 {
            return "\"\"".to_owned();
        }
        let odd = *self.pick(&[
            "", "é", r"\u006b", "😀", " ", ".", "result", r"\/", "unknown/",
        ]);
        format!("\"{odd}{number}\"")
    }

    fn join(&mut self, parts: &[String]) -> String {
        let mut text = String::new();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                let (before, after) = (self.space(), self.space());
                let _ = write!(text, "{before},{after}");
            }
            text.push_str(part);
        }
        text
    }

    fn space(&mut self) -> &'static str {
        let spaces = self.spaces;
        spaces[self.random.usize(..spaces.len())]
    }

    fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.random.usize(..choices.len())]
    }
}

/// Runs `case` for a number of seeds and names the seed that failed. `FANLIGHT_TEST_SEED` runs one
/// seed only.
pub async fn for_seeds<F: Future<Output = ()>>(count: u64, case: impl Fn(u64) -> F) {
    /// Prints the seed if the case panics.
    struct Named(u64);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!(
                    "failed with seed {0}; run it alone with FANLIGHT_TEST_SEED={0}",
                    self.0
                );
            }
        }
    }
    let only: Option<u64> = std::env::var("FANLIGHT_TEST_SEED")
        .ok()
        .map(|seed| seed.parse().expect("FANLIGHT_TEST_SEED is a number"));
    for seed in only.map_or(0..count, |seed| seed..seed + 1) {
        let named = Named(seed);
        case(seed).await;
        drop(named);
    }
}

#[cfg(test)]
mod tests {
    use crate::slicer;

    use super::*;

    /// Whether the text is JSON. serde_json rejects lone surrogates and huge numbers, so those are
    /// replaced first.
    fn is_json(text: &str) -> bool {
        let harmless = text
            .replace("1E400", "1")
            .replace(r"\ud83d\ude00", "x")
            .replace(r"\udc00\ud800", "x")
            .replace(r"\ud800", "x");
        serde_json::from_str::<serde_json::Value>(&harmless).is_ok()
    }

    #[test]
    fn generated_text_is_json_and_determined_by_its_seed() {
        for seed in 0..300 {
            for make in [
                Generator::value,
                Generator::object,
                Generator::deep,
                Generator::string,
                Generator::id,
            ] {
                let text = make(&mut Generator::new(seed));
                assert!(is_json(&text), "seed {seed}: {text}");
                assert!(!text.contains(['\n', '\r']), "seed {seed}: {text}");
                assert_eq!(text, make(&mut Generator::new(seed)));
            }
            assert!(is_json(&Generator::with_line_breaks(seed).object()));
        }
    }

    #[test]
    fn generator_covers_all_odd_cases() {
        let all: String = (0..300).map(|seed| Generator::new(seed).object()).collect();
        for odd in NUMBERS
            .iter()
            .chain(&PIECES)
            .chain(&["null", "\"\"", " :", "["])
        {
            assert!(all.contains(odd), "{odd} never came up");
        }
        assert!(
            (0..300).any(|seed| Generator::new(seed).object().len() > 20_000),
            "a long string never came up"
        );
    }

    #[test]
    fn slicer_reads_generated_text() {
        for seed in 0..300 {
            let object = Generator::with_line_breaks(seed).object();
            let members = slicer::members(&object).unwrap();
            assert!(!members.is_empty());
            for (name, value) in &members {
                assert_eq!(
                    slicer::member_at(&object, &[name]),
                    Some(*value),
                    "seed {seed}"
                );
            }
            let joined: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("\"{name}\":{value}"))
                .collect();
            assert_eq!(
                slicer::compact(&format!("{{{}}}", joined.join(","))),
                slicer::compact(&object)
            );
        }
    }
}
