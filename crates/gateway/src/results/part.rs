//! The parts of kept results: their URIs, and the pieces of them that clients ask for.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use data_encoding::BASE64;
use fanlight_protocol::json::{Json, MAX_NESTING, ObjectBuilder};
use percent_encoding::percent_decode_str;

/// How the bytes of a part are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// UTF-8 text.
    Text,
    /// JSON as the server wrote it.
    Json,
    /// Bytes, which the server wrote in Base64.
    Binary,
    /// A JSON string as the server wrote it, with escapes that are no Unicode.
    OddText,
    /// A JSON string as the server wrote it, which is no Base64.
    OddBinary,
}

/// A part of a kept result: a text, a binary block, structured content, or all content.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The JSON Pointer in the result.
    pub(crate) path: String,
    pub(crate) form: Form,
    pub(crate) mime: String,
    /// The place among the kept bytes.
    pub(crate) place: Range<usize>,
}

/// The URI of a part of a kept result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PartUri {
    pub(crate) handle: String,
    pub(crate) path: String,
    pub(crate) query: Query,
}

/// The piece of a part that a client asks for: the value at a JSON Pointer, of that some lines, of
/// these some bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pointer: Option<String>,
    lines: Option<Range<usize>>,
    bytes: Option<Range<usize>>,
}

/// A piece of a part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) form: Form,
    pub(crate) bytes: Bytes,
}

impl PartUri {
    /// Reads the rest of a URI after its scheme. The error says what is wrong with its query.
    pub(crate) fn parse(rest: &str) -> Result<Self, String> {
        let (place, asked) = rest.split_once('?').unwrap_or((rest, ""));
        let (handle, path) = place.split_at(place.find('/').unwrap_or(place.len()));
        let mut query = Query::default();
        for pair in asked.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            query.set(key, &percent_decoded(value)?)?;
        }
        Ok(Self {
            handle: handle.to_owned(),
            path: path.to_owned(),
            query,
        })
    }
}

impl Query {
    /// Sets one of `pointer`, `lines` and `bytes`, once.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let is_new = match key {
            "pointer" => self.pointer.replace(value.to_owned()).is_none(),
            "lines" => self.lines.replace(range(key, value, 1)?).is_none(),
            "bytes" => self.bytes.replace(range(key, value, 0)?).is_none(),
            _ => return Err(format!("{key:?} is neither pointer, bytes nor lines")),
        };
        is_new.then_some(()).ok_or(format!("{key} is given twice"))
    }

    /// The bytes of the part that have to be read, and the rest of the query.
    pub(crate) fn needed(&self, part: &Part) -> Result<(Range<usize>, Self), String> {
        let Part { place, form, .. } = part;
        let only = self.bytes.as_ref().filter(|_| {
            let is_plain = !matches!(form, Form::OddText | Form::OddBinary);
            is_plain && self.pointer.is_none() && self.lines.is_none()
        });
        Ok(match only {
            None => (place.clone(), self.clone()),
            Some(bytes) => {
                let found = within(bytes, place.len())?;
                let range = place.start + found.start..place.start + found.end;
                (range, Self::default())
            }
        })
    }

    /// Cuts the piece out of a part.
    pub(crate) fn cut(&self, form: Form, whole: Bytes) -> Result<Piece, String> {
        let mut piece = Piece { form, bytes: whole };
        if *self == Self::default() {
            return Ok(piece);
        }
        if matches!(form, Form::OddText | Form::OddBinary) {
            return Err(
                "this part can only be read whole: its escapes or its Base64 are invalid".into(),
            );
        }
        if let Some(pointer) = &self.pointer {
            let value = (form != Form::Binary)
                .then(|| Json::parse(piece.bytes.clone(), MAX_NESTING).ok())
                .flatten()
                .ok_or("pointer: this part is no JSON")?;
            let found = value
                .at_pointer(pointer)
                .ok_or("pointer: there is no such value")?;
            piece = Piece {
                form: Form::Json,
                bytes: found.into_bytes(),
            };
        }
        if let Some(lines) = &self.lines {
            if form == Form::Binary {
                return Err("lines: this part is no text".into());
            }
            piece.bytes = line_range(&piece.bytes, lines).map(|found| piece.bytes.slice(found))?;
            piece.form = Form::Text;
        }
        if let Some(bytes) = &self.bytes {
            piece.bytes = piece.bytes.slice(within(bytes, piece.bytes.len())?);
            piece.form = Form::Text;
        }
        Ok(piece.told_apart(form))
    }
}

impl Piece {
    /// The piece of a part of this form. Text that was cut through a character is binary.
    pub(crate) fn told_apart(self, of: Form) -> Self {
        let form = match self.form {
            _ if of == Form::Binary => Form::Binary,
            Form::Text if std::str::from_utf8(&self.bytes).is_err() => Form::Binary,
            form => form,
        };
        Self { form, ..self }
    }

    /// The member `text` or `blob` with the piece, for a resource's contents or an embedded block.
    pub(crate) fn member(&self) -> (&'static str, Json) {
        let text = || String::from_utf8_lossy(&self.bytes);
        let as_written = || Json::parse(self.bytes.clone(), 1).unwrap_or_else(|_| Json::null());
        match self.form {
            Form::Text | Form::Json => ("text", Json::string(&text())),
            Form::Binary => ("blob", Json::string(&BASE64.encode(&self.bytes))),
            Form::OddText => ("text", as_written()),
            Form::OddBinary => ("blob", as_written()),
        }
    }

    /// The contents of a resource (2026-07-28 server/resources, Reading Resources).
    pub(crate) fn contents(&self, uri: &str, part: &Part) -> Json {
        let (key, value) = self.member();
        let mime = match (self.form, part.form) {
            (Form::Json, _) => "application/json",
            (Form::Text, Form::Json) => "text/plain",
            (Form::Binary, Form::Text | Form::Json) => "application/octet-stream",
            _ => &part.mime,
        };
        ObjectBuilder::new()
            .string("uri", uri)
            .string("mimeType", mime)
            .member(key, &value)
            .finish()
    }
}

/// A range such as `0-9999`, whose ends are inclusive; `first` is the smallest number.
fn range(key: &str, text: &str, first: usize) -> Result<Range<usize>, String> {
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<usize>().ok())?
    };
    let found = text
        .split_once('-')
        .and_then(|(from, to)| Some((number(from)?, number(to)?)))
        .filter(|(from, to)| from <= to && *from >= first);
    let (from, to) = found.ok_or(format!("{key}: write a range, such as {first}-99"))?;
    Ok(from - first..(to - first).saturating_add(1))
}

/// The part of the range that a text of this length has.
fn within(range: &Range<usize>, length: usize) -> Result<Range<usize>, String> {
    if range.start >= length {
        return Err(format!("bytes: there are only {length}"));
    }
    Ok(range.start..range.end.min(length))
}

/// The place of these lines, counted from 0.
fn line_range(text: &[u8], lines: &Range<usize>) -> Result<Range<usize>, String> {
    let ends = memchr::memchr_iter(b'\n', text).map(|at| at + 1);
    let mut starts = std::iter::once(0)
        .chain(ends)
        .filter(|start| *start < text.len());
    let start = starts.nth(lines.start);
    let start = start.ok_or(format!("lines: there are only {}", line_count(text)))?;
    let end = starts.nth(lines.len() - 1).unwrap_or(text.len());
    Ok(start..end)
}

/// The number of lines of a text.
pub(crate) fn line_count(text: &[u8]) -> usize {
    let ends = memchr::memchr_iter(b'\n', text).count();
    ends + usize::from(!text.is_empty() && !text.ends_with(b"\n"))
}

/// The text with its percent-encoding (RFC 3986, 2.1) undone.
fn percent_decoded(text: &str) -> Result<Cow<'_, str>, String> {
    let is_code = |rest: &str| {
        let code = rest.as_bytes().get(..2);
        code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_code) {
        return Err("the query has an invalid percent-encoding".to_owned());
    }
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map_err(|_| "the query is no UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(form: Form, whole: &'static str, query: &str) -> Result<(Form, Vec<u8>), String> {
        let uri = PartUri::parse(&format!("h/content/0?{query}"))?;
        let piece = uri.query.cut(form, Bytes::from_static(whole.as_bytes()))?;
        Ok((piece.form, piece.bytes.to_vec()))
    }

    #[test]
    fn uri_has_handle_path_and_query() {
        let parsed = PartUri::parse("AB_c/content/0?pointer=/a%2Fb/%C3%A9&bytes=0-9").unwrap();
        let query = Query {
            pointer: Some("/a/b/é".into()),
            bytes: Some(0..10),
            lines: None,
        };
        let (handle, path) = ("AB_c".into(), "/content/0".into());
        assert_eq!(
            parsed,
            PartUri {
                handle,
                path,
                query
            }
        );
        for wrong in [
            "bytes=",
            "bytes=1",
            "bytes=5-4",
            "bytes=+1-2",
            "bytes=0-1&bytes=0-1",
            "lines=0-1",
            "lines=a-b",
            "x=1",
            "pointer=%",
            "pointer=%4",
            "pointer=%zz",
            "pointer=%ff",
            "bytes=-1-2",
        ] {
            assert!(PartUri::parse(&format!("a?{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn pieces_are_the_bytes_that_were_asked_for() {
        const JSON: &str = r#"{ "rows":[ 1.0,{"a/b~c":"\u0041"} ,[]], "é":null}"#;
        let text = |bytes: &str| Ok((Form::Text, bytes.as_bytes().to_vec()));
        let json = |bytes: &str| Ok((Form::Json, bytes.as_bytes().to_vec()));
        for form in [Form::Text, Form::Json] {
            for (query, expected) in [
                ("pointer=/rows/0", json("1.0")),
                ("pointer=/rows/1/a~1b~0c", json(r#""\u0041""#)),
                ("pointer=/rows/1/a%7E1b%7E0c", json(r#""\u0041""#)),
                ("pointer=/%C3%A9", json("null")),
                ("pointer=/rows&bytes=2-4", text("1.0")),
                ("bytes=0-9", text(r#"{ "rows":["#)),
                ("bytes=48-99999", text("l}")),
            ] {
                assert_eq!(cut(form, JSON, query), expected, "{query}");
            }
            for query in [
                "pointer=rows",
                "pointer=/rows/3",
                "pointer=/rows/00",
                "pointer=/rows/-",
                "pointer=/rows/+1",
                "pointer=/x",
                "bytes=52-53",
                "lines=2-3",
            ] {
                assert!(cut(form, JSON, query).is_err(), "{query}");
            }
        }
        assert!(cut(Form::Text, "{", "pointer=/a").is_err());
    }

    #[test]
    fn cut_through_a_character_is_binary() {
        assert_eq!(
            cut(Form::Text, "aé€", "bytes=0-2"),
            Ok((Form::Text, "aé".into()))
        );
        assert_eq!(
            cut(Form::Text, "aé€", "bytes=0-1"),
            Ok((Form::Binary, vec![b'a', 0xc3]))
        );
        assert_eq!(
            cut(Form::Text, "aé€", "bytes=2-5"),
            Ok((Form::Binary, vec![0xa9, 0xe2, 0x82, 0xac]))
        );
        assert_eq!(
            cut(Form::Binary, "abc", "bytes=1-1"),
            Ok((Form::Binary, b"b".to_vec()))
        );
        assert!(cut(Form::Binary, "abc", "lines=1-1").is_err());
        assert!(cut(Form::OddText, r#""\ud800""#, "bytes=0-1").is_err());
    }

    #[test]
    fn lines_are_counted_from_one() {
        for (text, query, expected) in [
            ("a\nb\nc", "lines=1-2", Some("a\nb\n")),
            ("a\nb\nc", "lines=3-9", Some("c")),
            ("a\nb\n", "lines=2-2", Some("b\n")),
            ("a\nb\n", "lines=3-3", None),
            ("\n\n", "lines=2-2", Some("\n")),
            ("", "lines=1-1", None),
        ] {
            let found = cut(Form::Text, text, query).ok();
            let expected = expected.map(|text| (Form::Text, text.as_bytes().to_vec()));
            assert_eq!(found, expected, "{text:?} {query}");
        }
        assert_eq!(
            [
                line_count(b""),
                line_count(b"a"),
                line_count(b"a\n"),
                line_count(b"\na")
            ],
            [0, 1, 1, 2]
        );
    }

    #[test]
    fn pieces_are_read_as_the_server_wrote_them() {
        let piece = |form, bytes: &'static [u8]| {
            Piece {
                form,
                bytes: Bytes::from_static(bytes),
            }
            .member()
        };
        let (key, text) = piece(Form::OddText, br#""a\ud800""#);
        assert_eq!((key, text.as_text()), ("text", r#""a\ud800""#));
        let (key, blob) = piece(Form::Binary, b"\x00\xff");
        assert_eq!((key, blob.as_text()), ("blob", r#""AP8=""#));
    }
}
