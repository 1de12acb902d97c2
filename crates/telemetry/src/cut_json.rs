//! Makes JSON of the beginning of a JSON text.

/// A longer word in a cut string is kept. It is data, such as an image. A shorter one may be the
/// beginning of a secret that only its rest would show.
const WORD: usize = 4096;

/// The beginning of a JSON text up to its last complete value, with the brackets closed. A string
/// that was cut keeps its complete words.
pub(crate) fn completed(start: &str) -> String {
    let mut scan = Scan::default();
    for (at, byte) in start.bytes().enumerate() {
        scan.take(at, byte);
    }
    let (end, open) = match scan.text.filter(|text| !text.is_key) {
        Some(text) => (text.end(start.len()), scan.open.len()),
        None => (scan.end, scan.complete),
    };
    let mut out = start.get(..end).unwrap_or_default().to_owned();
    if scan.text.is_some_and(|text| !text.is_key) {
        out.push('"');
    }
    scan.open.truncate(open);
    out.extend(scan.open.iter().rev().map(|bracket| match bracket {
        b'{' => '}',
        _ => ']',
    }));
    out
}

/// The state after a part of the text.
#[derive(Default)]
struct Scan {
    /// The open brackets.
    open: Vec<u8>,
    /// The end of the last complete value, and how many brackets were open there.
    end: usize,
    complete: usize,
    /// Whether a string would be the name of a member.
    before_name: bool,
    /// The string that the text is in.
    text: Option<Text>,
}

#[derive(Clone, Copy)]
struct Text {
    start: usize,
    is_key: bool,
    /// The number of bytes that belong to the current escape.
    escape: usize,
    /// The start of the last character.
    character: usize,
    /// The end of the last complete word.
    word: usize,
}

impl Scan {
    fn take(&mut self, at: usize, byte: u8) {
        if let Some(text) = &mut self.text {
            if !text.take(at, byte) {
                return;
            }
            if !text.is_key {
                self.value_ends_at(at + 1);
            }
            self.text = None;
            return;
        }
        match byte {
            b'"' => {
                self.text = Some(Text {
                    start: at + 1,
                    is_key: self.before_name,
                    escape: 0,
                    character: at + 1,
                    word: at + 1,
                });
            }
            b'{' | b'[' => {
                self.open.push(byte);
                self.before_name = byte == b'{';
                self.value_ends_at(at + 1);
            }
            b'}' | b']' => {
                self.open.pop();
                self.before_name = false;
                self.value_ends_at(at + 1);
            }
            b',' => {
                self.before_name = self.open.last() == Some(&b'{');
                self.value_ends_at(at);
            }
            b':' => self.before_name = false,
            _ => {}
        }
    }

    fn value_ends_at(&mut self, end: usize) {
        (self.end, self.complete) = (end, self.open.len());
    }
}

impl Text {
    /// Takes the next byte. Returns whether it ends the string.
    fn take(&mut self, at: usize, byte: u8) -> bool {
        if self.escape > 0 {
            self.escape = match byte {
                b'u' if self.escape == ESCAPED => 4,
                _ if self.escape == ESCAPED => 0,
                _ => self.escape - 1,
            };
            return false;
        }
        if byte & 0xC0 != 0x80 {
            self.character = at;
        }
        match byte {
            b'"' => return true,
            b'\\' => self.escape = ESCAPED,
            b' ' => self.word = at,
            _ => {}
        }
        false
    }

    /// The place to end the string at, if the text ends at `cut`.
    fn end(self, cut: usize) -> usize {
        if cut - self.word < WORD {
            self.word
        } else {
            self.character.max(self.start)
        }
    }
}

/// The state right after a backslash.
const ESCAPED: usize = usize::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_json_is_completed_with_its_complete_values() {
        for (start, whole) in [
            ("{", "{}"),
            (r#"{"a"#, "{}"),
            (r#"{"a":"#, "{}"),
            (r#"{"a":12"#, "{}"),
            (r#"{"a":12,"b":tr"#, r#"{"a":12}"#),
            (r#"{"a":"one two thr"#, r#"{"a":"one two"}"#),
            (r#"{"a":"one"#, r#"{"a":""}"#),
            (r#"{"a":"x \"y\" z\u00"#, r#"{"a":"x \"y\""}"#),
            (r#"{"a":[{"b":"c"},"#, r#"{"a":[{"b":"c"}]}"#),
            (r#"{"a":[{"b":"c"},{"d":["#, r#"{"a":[{"b":"c"},{"d":[]}]}"#),
            (r#"{"a":["{,","b"#, r#"{"a":["{,",""]}"#),
        ] {
            assert_eq!(completed(start), whole, "{start}");
        }
    }
}
