//! Finds known secrets in texts: configured values, credentials and session ids that crossed the
//! wire, each in itself and encoded.

use std::collections::HashSet;
use std::io::Read as _;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER};
use flate2::read::MultiGzDecoder;

/// The shortest value that is searched for. Shorter ones would hide parts of other words.
const SHORTEST: usize = 8;
/// The most values that are learnt from messages.
const MOST_LEARNT: usize = 4096;
/// The number of learnt values after which the search for all of them is built again.
const YOUNG: usize = 64;
/// The limit of decompressed bytes that are searched.
const UNPACKED: u64 = 4 << 20;
/// The beginning of compressed data, in bytes and in base64.
const GZIP: (&[u8], &[u8]) = (&[0x1f, 0x8b], b"H4sI");

/// Known secrets.
#[derive(Debug, Default)]
pub(super) struct Values {
    known: HashSet<Box<[u8]>>,
    configured: Search,
    old: Search,
    young: Search,
    /// Learnt values; the last ones are in `young`.
    learnt: Vec<Box<[u8]>>,
}

/// The search for some values.
#[derive(Debug, Default)]
struct Search {
    automaton: Option<AhoCorasick>,
    /// For each pattern, whether it is a value itself.
    is_plain: Vec<bool>,
}

impl Values {
    /// Whether no further value can be learnt.
    pub(super) fn is_full(&self) -> bool {
        self.learnt.len() >= MOST_LEARNT
    }

    /// Adds the configured values. Values of an earlier configuration stay secret.
    pub(super) fn configure(&mut self, values: Vec<String>) {
        let before = self.known.len();
        self.known.extend(
            values
                .into_iter()
                .filter(|value| value.len() >= SHORTEST)
                .map(|value| value.into_bytes().into()),
        );
        if self.known.len() > before {
            self.configured = Search::new(self.known.iter());
        }
    }

    /// Adds a value that crossed the wire.
    pub(super) fn learn(&mut self, value: &[u8]) {
        if value.len() < SHORTEST || self.is_full() || !self.known.insert(value.into()) {
            return;
        }
        self.learnt.push(value.into());
        let of_old = self.learnt.len() / YOUNG * YOUNG;
        let (old, young) = self.learnt.split_at(of_old);
        if young.is_empty() {
            self.old = Search::new(old.iter());
        }
        self.young = Search::new(young.iter());
    }

    /// Whether the bytes contain a value, in itself or encoded.
    pub(super) fn are_in(&self, bytes: &[u8]) -> bool {
        self.find(bytes).next().is_some() || self.are_within(bytes)
    }

    /// `text` with `blank` in place of each value; `None` if it has none.
    pub(super) fn mask_values(&self, text: &str, blank: &str) -> Option<String> {
        let mut places: Vec<_> = self.find(text.as_bytes()).collect();
        places.sort_by_key(|place| place.start);
        let (mut out, mut copied) = (String::new(), 0);
        for place in &places {
            if place.end <= copied {
                continue;
            }
            if place.start >= copied {
                out.push_str(text.get(copied..place.start)?);
                out.push_str(blank);
            }
            copied = place.end;
        }
        out.push_str(text.get(copied..)?);
        if self.are_within(out.as_bytes()) {
            return Some(blank.to_owned());
        }
        (copied > 0).then_some(out)
    }

    /// The places of values.
    fn find<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
        let all = [&self.configured, &self.old, &self.young];
        all.into_iter().flat_map(move |search| search.find(bytes))
    }

    /// Whether the bytes contain a value after decoding: with escapes, in several lines, or
    /// compressed.
    fn are_within(&self, bytes: &[u8]) -> bool {
        let finds = |decoded: Vec<u8>| {
            let is_other = decoded.len() != bytes.len();
            is_other && self.find(&decoded).next().is_some()
        };
        if bytes.contains(&b'%') && finds(without_percents(bytes)) {
            return true;
        }
        if bytes.contains(&b'\\') {
            // A text within a text within a text.
            let once = without_escapes(bytes);
            let twice = without_escapes(&once);
            if finds(once) || finds(twice) {
                return true;
            }
        }
        let is_space = |byte: &u8| byte.is_ascii_whitespace();
        if bytes.iter().any(is_space)
            && finds(
                bytes
                    .iter()
                    .copied()
                    .filter(|byte| !is_space(byte))
                    .collect(),
            )
        {
            return true;
        }
        self.are_compressed_in(bytes)
    }

    fn are_compressed_in(&self, bytes: &[u8]) -> bool {
        let (raw, coded) = GZIP;
        let in_raw = memchr::memmem::find_iter(bytes, raw)
            .take(8)
            .any(|at| self.are_unpacked_in(bytes.get(at..).unwrap_or_default()));
        in_raw
            || memchr::memmem::find_iter(bytes, coded).take(8).any(|at| {
                let rest = bytes.get(at..).unwrap_or_default().iter();
                let text: Vec<u8> = rest
                    .filter(|byte| !byte.is_ascii_whitespace())
                    .map_while(|byte| match byte {
                        b'-' => Some(b'+'),
                        b'_' => Some(b'/'),
                        b'+' | b'/' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => Some(*byte),
                        _ => None,
                    })
                    .collect();
                let whole = text.len() / 4 * 4;
                let text = text.get(..whole).unwrap_or_default();
                let packed = BASE64_NOPAD.decode(text).unwrap_or_default();
                self.are_unpacked_in(&packed)
            })
    }

    fn are_unpacked_in(&self, packed: &[u8]) -> bool {
        let mut unpacked = Vec::new();
        // The bytes before an error count, too.
        let _ = MultiGzDecoder::new(packed)
            .take(UNPACKED)
            .read_to_end(&mut unpacked);
        !unpacked.is_empty() && self.find(&unpacked).next().is_some()
    }
}

impl Search {
    fn new<'a>(values: impl Iterator<Item = &'a Box<[u8]>>) -> Self {
        let (mut patterns, mut is_plain) = (Vec::new(), Vec::new());
        for value in values {
            patterns.push(value.to_vec());
            is_plain.push(true);
            for form in forms(value) {
                patterns.push(form);
                is_plain.push(false);
            }
        }
        // The size of the search is limited; a value that does not fit cannot be searched for.
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .build(patterns)
            .ok();
        Self {
            automaton,
            is_plain,
        }
    }

    fn find<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Range<usize>> + 'a {
        let found = self
            .automaton
            .iter()
            .flat_map(move |all| all.find_overlapping_iter(bytes));
        found.map(move |found| {
            let range = found.range();
            match self.is_plain.get(found.pattern().as_usize()) {
                Some(true) => range,
                _ => around(bytes, range),
            }
        })
    }
}

/// The whole encoded word around a place.
fn around(bytes: &[u8], place: Range<usize>) -> Range<usize> {
    let is_part = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=' | b'%')
    };
    let (before, after) = (
        bytes.get(..place.start).unwrap_or_default(),
        bytes.get(place.end..).unwrap_or_default(),
    );
    let start = before.iter().rev().take_while(|byte| is_part(byte)).count();
    let end = after.iter().take_while(|byte| is_part(byte)).count();
    place.start - start..place.end + end
}

/// The encoded forms of a value.
fn forms(value: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![
        HEXLOWER.encode(value).into_bytes(),
        value.iter().rev().copied().collect(),
    ];
    if let Ok(text) = std::str::from_utf8(value) {
        all.push(text.chars().rev().collect::<String>().into_bytes());
        all.push(serde_json::to_string(text).unwrap_or_default().into_bytes());
    }
    for shift in 0..3 {
        for coding in [&BASE64_NOPAD, &BASE64URL_NOPAD] {
            let text = coding.encode(&[&vec![0; shift][..], value].concat());
            // The first characters also stand for the bytes before, and the last one for the bytes
            // after.
            let (start, end) = ((shift * 4).div_ceil(3), (shift + value.len()) * 4 / 3);
            all.extend(text.get(start..end).map(|text| text.as_bytes().to_vec()));
        }
    }
    all.retain(|form| form.len() >= SHORTEST && form != value);
    all
}

/// The bytes with `%41` decoded.
fn without_percents(bytes: &[u8]) -> Vec<u8> {
    decoded(bytes, b'%', |after| {
        let code = after.get(..2).and_then(hex)?;
        Some((vec![u8::try_from(code).ok()?], 2))
    })
}

/// The bytes with the escapes of JSON decoded.
fn without_escapes(bytes: &[u8]) -> Vec<u8> {
    decoded(bytes, b'\\', |after| {
        let simple = |byte: u8| Some((vec![byte], 1));
        match *after.first()? {
            b'u' => {
                let code = after.get(1..5).and_then(hex)?;
                let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                Some((character.to_string().into_bytes(), 5))
            }
            b'n' => simple(b'\n'),
            b'r' => simple(b'\r'),
            b't' => simple(b'\t'),
            b'b' => simple(8),
            b'f' => simple(12),
            other => simple(other),
        }
    })
}

/// The bytes with each escape replaced. `read` gets the bytes after the mark; it returns the decoded
/// bytes and the number of bytes that it read.
fn decoded(bytes: &[u8], mark: u8, read: impl Fn(&[u8]) -> Option<(Vec<u8>, usize)>) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
    while let Some(at) = memchr::memchr(mark, rest) {
        let (before, from) = rest.split_at(at);
        out.extend_from_slice(before);
        let after = from.get(1..).unwrap_or_default();
        rest = match read(after) {
            Some((character, length)) => {
                out.extend(character);
                after.get(length..).unwrap_or_default()
            }
            None => {
                out.push(mark);
                after
            }
        };
    }
    out.extend_from_slice(rest);
    out
}

fn hex(digits: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(digits).ok()?;
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use data_encoding::{BASE64, BASE64_MIME, HEXUPPER};
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const SECRET: &str = "s3cret/Wört+1";

    fn values() -> Values {
        let mut values = Values::default();
        values.configure(vec!["short".to_owned(), SECRET.to_owned()]);
        values
    }

    #[test]
    fn value_is_found_in_every_encoding() {
        let values = values();
        let bytes = SECRET.as_bytes();
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed
            .write_all(format!("a long text with {SECRET} in it").as_bytes())
            .unwrap();
        let packed = packed.finish().unwrap();
        let percent: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
        let escapes: String = SECRET
            .encode_utf16()
            .map(|unit| format!("\\u{unit:04X}"))
            .collect();
        let mut texts = vec![
            SECRET.to_owned(),
            SECRET.to_ascii_uppercase(),
            HEXLOWER.encode(bytes),
            HEXUPPER.encode(bytes),
            percent,
            SECRET.replace('/', "%2F").replace('+', "%2b"),
            escapes.clone(),
            escapes.replace('\\', "\\\\"),
            SECRET.chars().rev().collect(),
            BASE64.encode(&packed),
            BASE64_MIME.encode(&[b"x".repeat(50), bytes.to_vec()].concat()),
        ];
        for shift in 0..3 {
            let around = format!("{}{SECRET} and more", "x".repeat(shift));
            texts.push(BASE64.encode(around.as_bytes()));
            texts.push(BASE64URL_NOPAD.encode(around.as_bytes()));
        }
        for text in texts {
            assert!(values.are_in(text.as_bytes()), "{text}");
            let masked = values
                .mask_values(&format!("see {text}"), "[masked]")
                .unwrap();
            assert!(
                masked.contains("[masked]") && !values.are_in(masked.as_bytes()),
                "{masked}"
            );
        }
        assert!(values.are_in(&packed));
    }

    #[test]
    fn other_text_stays_as_it_is() {
        let values = values();
        for text in [
            "",
            "short",
            "s3cret",
            "100% \\u0041 H4sIAAAA aGVsbG8gd29ybGQ=",
        ] {
            assert_eq!(values.mask_values(text, "-"), None, "{text}");
        }
        let masked = values
            .mask_values(&format!("a {SECRET}{SECRET} z"), "-")
            .unwrap();
        assert_eq!(masked, "a -- z");
    }

    #[test]
    fn learnt_values_are_found_up_to_a_limit() {
        let mut values = values();
        for number in 0..2 * YOUNG + 3 {
            values.learn(format!("session-{number}-").as_bytes());
        }
        for number in [0, 1, YOUNG, 2 * YOUNG + 2] {
            assert!(
                values.are_in(format!("session-{number}-").as_bytes()),
                "{number}"
            );
        }
        values.configure(vec!["another-one".to_owned()]);
        assert!(values.are_in(b"another-one") && values.are_in(SECRET.as_bytes()));
        assert!(!values.is_full());
    }
}
