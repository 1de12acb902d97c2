//! Shortens a result: clients get the beginning and the shape of each large part, and links to the
//! whole.

use std::collections::VecDeque;

use bytes::Bytes;
use data_encoding::BASE64;
use fanlight_protocol::json::{Json, Kind, MAX_NESTING, ObjectBuilder, pointer_step};

use super::part::{Form, Part, line_count};

/// The bytes for the explanation and the link that replace a part, besides its beginning and shape.
const WORDS: usize = 1 << 10;
/// The share of the bytes for a part that its shape may take, as a divisor; and the most bytes.
const SHAPE: (usize, usize) = (4, 2 << 10);

const CONTENT: &str = "content";
const STRUCTURED: &str = "structuredContent";

/// How a result is shortened.
pub(crate) struct Shortener {
    /// The longest result that passes unchanged, in bytes.
    pub(crate) inline: usize,
    /// Whether `structuredContent` stays: the tool has an output schema (2026-07-28 server/tools,
    /// Output Schema: "Servers MUST provide structured results that conform to this schema").
    pub(crate) keeps_structured: bool,
    /// The URI of the result, with which the URIs of its parts begin.
    pub(crate) uri: String,
    /// When the result is dropped at the latest, as clients read it.
    pub(crate) until: String,
    /// The client's name of the tool that reads parts.
    pub(crate) tool: String,
}

/// A shortened result, and the parts that it lacks.
pub(crate) struct Shortened {
    pub(crate) result: Json,
    pub(crate) parts: Vec<Part>,
    /// The bytes of each part.
    pub(crate) kept: Vec<Bytes>,
}

/// A value that can be left out of a result.
struct Payload {
    form: Form,
    /// The string with the text or the Base64, or the JSON value.
    value: Json,
    mime: String,
}

impl Shortener {
    /// Shortens a result; `None` if it is short enough, or if nothing can be left out.
    pub(crate) fn shorten(&self, result: &Json) -> Option<Shortened> {
        let size = result.bytes().len();
        if size <= self.inline {
            return None;
        }
        let content = result.get(CONTENT).filter(|it| it.kind() == Kind::Array);
        let content = content.unwrap_or_else(|| Json::array([]));
        let structured = result.get(STRUCTURED).filter(|_| !self.keeps_structured);
        let blocks: Vec<_> = content
            .items()
            .map(|block| (Payload::from_block(&block), block))
            .collect();
        let sizes = blocks
            .iter()
            .filter_map(|(payload, block)| payload.as_ref().map(|_| block))
            .chain(&structured)
            .map(|value| value.bytes().len());
        let sizes: Vec<_> = sizes.collect();
        let fixed = size.saturating_sub(sizes.iter().sum());
        let room = self.inline.saturating_sub(fixed);
        let most = largest(&sizes, room).max(WORDS);
        let after: usize = sizes.iter().map(|size| *size.min(&most)).sum();
        let mut cut = Cut {
            shortener: self,
            most,
            parts: Vec::new(),
            kept: Vec::new(),
        };
        let mut new = Vec::new();
        if after > room && blocks.len() > 1 {
            // Even a link for each block would be too much.
            let others = structured.as_ref().map_or(0, |value| value.bytes().len());
            let room = self
                .inline
                .saturating_sub(size - content.bytes().len() - others);
            cut.most = (room / (1 + usize::from(structured.is_some()))).max(WORDS);
            let first = blocks
                .iter()
                .find_map(|(payload, _)| payload.as_ref()?.text());
            let first = first.map(Bytes::from);
            let all = Payload::json(content);
            cut.leave_out(CONTENT, &Json::empty_object(), &all, first, &mut new);
        } else {
            for (at, (payload, block)) in blocks.iter().enumerate() {
                match payload.as_ref().filter(|_| block.bytes().len() > most) {
                    Some(payload) => {
                        cut.leave_out(&format!("{CONTENT}/{at}"), block, payload, None, &mut new);
                    }
                    None => new.push(block.clone()),
                }
            }
        }
        let structured = structured.filter(|value| value.bytes().len() > most.min(cut.most));
        if let Some(value) = &structured {
            let payload = Payload::json(value.clone());
            cut.leave_out(STRUCTURED, &Json::empty_object(), &payload, None, &mut new);
        }
        if cut.parts.is_empty() {
            return None;
        }
        let mut short = ObjectBuilder::new();
        let mut content = Some(Json::array(new));
        for member in result.members() {
            let (key, value) = (
                result.slice(member.key.clone()),
                result.slice(member.value.clone()),
            );
            if member.is(result, CONTENT) {
                if let Some(content) = content.take() {
                    short.raw_member(&key, &content);
                }
            } else if structured.is_none() || !member.is(result, STRUCTURED) {
                short.raw_member(&key, &value);
            }
        }
        Some(Shortened {
            result: short.optional(CONTENT, content.as_ref()).finish(),
            parts: cut.parts,
            kept: cut.kept,
        })
    }
}

/// A result that is being shortened.
struct Cut<'a> {
    shortener: &'a Shortener,
    /// The maximum size of the replacement of a part.
    most: usize,
    parts: Vec<Part>,
    kept: Vec<Bytes>,
}

impl Cut<'_> {
    /// Keeps a part, and adds the block and the link that stand for it. The block has the beginning
    /// of `text`, or of the part, with words about the rest.
    fn leave_out(
        &mut self,
        path: &str,
        block: &Json,
        payload: &Payload,
        text: Option<Bytes>,
        new: &mut Vec<Json>,
    ) {
        let Shortener {
            uri, until, tool, ..
        } = self.shortener;
        let (form, bytes) = payload.copy();
        let start = self.parts.last().map_or(0, |part| part.place.end);
        let size = bytes.len();
        let text = text.or_else(|| (form == Form::Text).then(|| bytes.clone()));
        let shown = text
            .as_ref()
            .and_then(|text| std::str::from_utf8(text).ok());
        self.kept.push(bytes.clone());
        let uri = format!("{uri}/{path}");
        let of_shape = (self.most / SHAPE.0).min(SHAPE.1);
        let shape = match form {
            Form::Json => describe_json(&payload.value, of_shape),
            Form::Text => describe_text(&bytes, of_shape),
            _ => payload.mime.clone(),
        };
        let resource = block
            .get("resource")
            .and_then(|resource| resource.text_at("uri"));
        let shape = match resource {
            Some(resource) => format!("{}, {shape}", head(&resource, of_shape)),
            None => shape,
        };
        let room = self.most.saturating_sub(WORDS + shape.len());
        let head = head(shown.unwrap_or_default(), room);
        let gap = if head.is_empty() { "" } else { "\n\n" };
        let note = format!(
            "{head}{gap}[{path} was shortened: {} of {size} bytes are shown. Read it, whole or in parts, with {tool} or \
             resources/read: {uri} (parts: ?bytes=0-9999, ?lines=1-200, ?pointer=/a/0). Kept until {until} at most.\n{shape}]",
            head.len()
        );
        let stands_in = block.without_members(&["type", "text", "data", "mimeType", "resource"]);
        let stands_in = stands_in.with_member("type", &Json::string("text"));
        new.push(stands_in.with_member("text", &Json::string(&note)));
        let mut link = ObjectBuilder::new();
        link.string("type", "resource_link")
            .string("uri", &uri)
            .string("name", path)
            .string(
                "description",
                &format!("The whole, kept until {until} at most"),
            )
            .string("mimeType", &payload.mime)
            .integer("size", i64::try_from(size).unwrap_or(i64::MAX));
        new.push(link.finish());
        self.parts.push(Part {
            path: format!("/{path}"),
            form,
            mime: payload.mime.clone(),
            place: start..start + size,
        });
    }
}

impl Payload {
    fn json(value: Json) -> Self {
        Self {
            form: Form::Json,
            value,
            mime: "application/json".into(),
        }
    }

    /// The value that can be left out of a content block; `None` for links and unknown kinds.
    fn from_block(block: &Json) -> Option<Self> {
        let (form, key, holder) = match &*block.text_at("type")? {
            "text" => (Form::Text, "text", block.clone()),
            "image" | "audio" => (Form::Binary, "data", block.clone()),
            "resource" => {
                let resource = block.get("resource")?;
                match resource.peek("text") {
                    Some(_) => (Form::Text, "text", resource),
                    None => (Form::Binary, "blob", resource),
                }
            }
            _ => return None,
        };
        let value = holder.get(key).filter(|it| it.kind() == Kind::String)?;
        let usual = if form == Form::Text {
            "text/plain"
        } else {
            "application/octet-stream"
        };
        let mime = holder.text_at("mimeType").filter(|mime| mime.len() <= 128);
        Some(Self {
            form,
            value,
            mime: mime.unwrap_or_else(|| usual.to_owned()),
        })
    }

    /// The text of a text block.
    fn text(&self) -> Option<String> {
        (self.form == Form::Text).then(|| self.value.to_str())?
    }

    /// The bytes to keep, in memory of their own, and their form.
    fn copy(&self) -> (Form, Bytes) {
        let written = |form| (form, Bytes::copy_from_slice(self.value.bytes()));
        match self.form {
            Form::Text => match self.text() {
                Some(text) => (Form::Text, text.into()),
                None => written(Form::OddText),
            },
            Form::Binary => {
                let text = self.value.as_str();
                match text.and_then(|text| BASE64.decode(text.as_bytes()).ok()) {
                    Some(bytes) => (Form::Binary, bytes.into()),
                    None => written(Form::OddBinary),
                }
            }
            form => written(form),
        }
    }
}

/// The largest size that each of these parts may have so that all fit into `room`.
fn largest(sizes: &[usize], room: usize) -> usize {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    let (mut left, mut count) = (room, sizes.len());
    for size in sizes {
        if size.saturating_mul(count) > left {
            return left / count;
        }
        (left, count) = (left - size, count - 1);
    }
    usize::MAX
}

/// The most values of a JSON text that are described.
const VALUES: usize = 64;

/// The beginning of a text that takes at most `most` bytes as a JSON string.
pub(super) fn head(text: &str, most: usize) -> &str {
    let mut size = 0;
    let is_beyond = |character: char| {
        size += match character {
            '"' | '\\' | '\n' | '\r' | '\t' => 2,
            '\0'..'\x20' => 6,
            _ => character.len_utf8(),
        };
        size > most
    };
    text.split(is_beyond).next().unwrap_or_default()
}

/// The shape of a text, in at most `most` bytes: the types and lengths of its values if it is JSON,
/// else its number of lines.
fn describe_text(text: &Bytes, most: usize) -> String {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    let may_be_json = matches!(first, Some(b'{' | b'['));
    let parse = || Json::parse(text.clone(), MAX_NESTING).ok();
    match may_be_json.then(parse).flatten() {
        Some(value) => describe_json(&value, most),
        None => format!("text, {} lines", line_count(text)),
    }
}

/// The types and lengths of the values in a JSON value, by JSON Pointer; of an array, of its
/// first element.
fn describe_json(value: &Json, most: usize) -> String {
    let mut shape = String::from("JSON");
    let mut next = VecDeque::from([(String::new(), value.clone())]);
    for _ in 0..VALUES {
        let Some((pointer, value)) = next.pop_front() else {
            return shape;
        };
        let described = match value.kind() {
            Kind::Object => format!("object of {}", value.members().count()),
            Kind::Array => format!("array of {}", value.elements().count()),
            Kind::String => format!("string of {} bytes", value.bytes().len() - 2),
            Kind::Number => "number".to_owned(),
            Kind::Bool => "boolean".to_owned(),
            Kind::Null => "null".to_owned(),
        };
        let line = match &*pointer {
            "" => format!(", {described}"),
            pointer => format!("\n{pointer}: {described}"),
        };
        if shape.len() + line.len() > most {
            break;
        }
        shape += &line;
        let room = VALUES.saturating_sub(next.len());
        next.extend(value.members().take(room).filter_map(|member| {
            let step = pointer_step(&member.name(&value)?);
            Some((format!("{pointer}{step}"), value.slice(member.value)))
        }));
        let first = value.items().next();
        next.extend(first.map(|first| (format!("{pointer}/0"), first)));
    }
    if next.is_empty() {
        shape
    } else {
        shape + "\n…"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shorten(result: &str, keeps_structured: bool) -> Option<Shortened> {
        let result = Json::parse(result.to_owned().into(), 64).unwrap();
        let shortener = Shortener {
            inline: 8 << 10,
            keeps_structured,
            uri: "fanlight-result:H".into(),
            until: "2026-11-30T10:00:00Z".into(),
            tool: "read_result".into(),
        };
        shortener.shorten(&result)
    }

    fn kept_block(found: &Shortened, at: usize) -> (&str, Form, &[u8]) {
        let (part, bytes) = (&found.parts[at], &found.kept[at]);
        assert_eq!(part.place.len(), bytes.len());
        (&part.path, part.form, bytes)
    }

    #[test]
    fn long_text_becomes_its_head_its_shape_and_a_link() {
        let text = "line é\\n".repeat(3000);
        let result = format!(
            r#"{{ "_meta":{{"a":1.0}}, "content":[ {{"type":"text","text":"{text}","annotations":{{"priority":1.0}}}},{{"type":"text","text":"short"}}], "isError":true,"x":1E400}}"#
        );
        let found = shorten(&result, false).unwrap();
        assert!(found.result.bytes().len() <= 8 << 10);
        let plain = "line é\n".repeat(3000);
        assert_eq!(
            kept_block(&found, 0),
            ("/content/0", Form::Text, plain.as_bytes())
        );
        let blocks: Vec<_> = found.result.get("content").unwrap().items().collect();
        let head = blocks[0].text_at("text").unwrap();
        assert!(
            head.starts_with("line é\nline é\n") && head.contains("text, 3000 lines"),
            "{head}"
        );
        assert_eq!(
            blocks[0].get("annotations").unwrap().as_text(),
            r#"{"priority":1.0}"#
        );
        assert_eq!(
            blocks[1].text_at("uri").unwrap(),
            "fanlight-result:H/content/0"
        );
        assert_eq!(
            blocks[1].get("size").unwrap().as_text(),
            plain.len().to_string()
        );
        assert_eq!(blocks[2].as_text(), r#"{"type":"text","text":"short"}"#);
        let rest = [
            ("_meta", r#"{"a":1.0}"#),
            ("isError", "true"),
            ("x", "1E400"),
        ];
        for (name, expected) in rest {
            assert_eq!(found.result.get(name).unwrap().as_text(), expected);
        }
        assert!(shorten(r#"{"content":[]}"#, false).is_none());
    }

    #[test]
    fn structured_content_is_left_out_unless_the_tool_promises_it() {
        let rows = vec![r#"{ "id":1.0 }"#; 1000].join(",");
        let result = format!(r#"{{"content":[],"structuredContent":{{ "rows":[{rows}]}}}}"#);
        let found = shorten(&result, false).unwrap();
        assert!(found.result.get("structuredContent").is_none());
        let (path, form, bytes) = kept_block(&found, 0);
        assert_eq!((path, form), ("/structuredContent", Form::Json));
        assert_eq!(bytes, format!(r#"{{ "rows":[{rows}]}}"#).as_bytes());
        let shape = found.result.get("content").unwrap().items().next().unwrap();
        assert!(
            shape
                .text_at("text")
                .unwrap()
                .contains("/rows: array of 1000")
        );
        assert!(
            shorten(&result, true).is_none(),
            "nothing else can be left out"
        );
    }

    #[test]
    fn binary_and_odd_blocks_are_kept_as_they_are() {
        let data = BASE64.encode(&[7; 9000]);
        let (odd, no_base64) = (r"\ud800".repeat(2000), "?".repeat(12_000));
        let result = format!(
            r#"{{"content":[{{"type":"image","data":"{data}","mimeType":"image/png"}},{{"type":"text","text":"{odd}"}},
                {{"type":"resource","resource":{{"uri":"x://1","text":"{}"}}}},{{"type":"audio","data":"{no_base64}"}},
                {{"type":"resource_link","uri":"x://2","name":"n"}}]}}"#,
            "t".repeat(9000)
        );
        let found = shorten(&result, false).unwrap();
        assert!(found.result.bytes().len() <= 8 << 10);
        assert_eq!(
            kept_block(&found, 0),
            ("/content/0", Form::Binary, &[7; 9000][..])
        );
        assert_eq!(
            kept_block(&found, 1),
            ("/content/1", Form::OddText, format!("\"{odd}\"").as_bytes())
        );
        assert_eq!(kept_block(&found, 2).1, Form::Text);
        assert_eq!(kept_block(&found, 3).1, Form::OddBinary);
        let content = found.result.get("content").unwrap().as_text().to_owned();
        assert!(content.contains("x://1") && content.contains(r#""uri":"x://2""#));
    }

    #[test]
    fn too_many_blocks_become_one_part() {
        let blocks =
            vec![r#"{"type":"text","text":"some hundred characters or less"}"#; 2000].join(", ");
        let found = shorten(&format!(r#"{{"content":[{blocks}]}}"#), false).unwrap();
        let all = format!("[{blocks}]");
        assert_eq!(
            kept_block(&found, 0),
            ("/content", Form::Json, all.as_bytes())
        );
        assert!(found.result.bytes().len() <= 8 << 10);
        let blocks: Vec<_> = found.result.get("content").unwrap().items().collect();
        assert_eq!(blocks.len(), 2);
        assert!(
            blocks[0]
                .text_at("text")
                .unwrap()
                .starts_with("some hundred")
        );
    }

    #[test]
    fn small_parts_stay_whole() {
        assert_eq!(largest(&[10, 2000, 20], 1000), 970);
        assert_eq!(largest(&[10, 20], 1000), usize::MAX);
        assert_eq!(largest(&[], 0), usize::MAX);
    }
}

#[cfg(test)]
mod shape_tests {
    use super::*;

    #[test]
    fn head_ends_between_characters_and_fits_as_json() {
        for (text, most, expected) in [
            ("aé€", 5, "aé"),
            ("aé€", 6, "aé€"),
            ("a\"b", 2, "a"),
            ("\u{1}b", 6, "\u{1}"),
            ("abc", 0, ""),
        ] {
            assert_eq!(head(text, most), expected, "{text:?} {most}");
            assert!(Json::string(head(text, most)).bytes().len() <= most + 2);
        }
    }

    #[test]
    fn shape_gives_types_and_lengths_by_pointer() {
        let text = r#" {"rows":[{"id":1,"a/b":"xy"},{}],"ok":true,"none":null}"#;
        let expected = "JSON, object of 3\n/rows: array of 2\n/ok: boolean\n/none: null\n/rows/0: object of 2\n\
                        /rows/0/id: number\n/rows/0/a~1b: string of 2 bytes";
        let of_text = |text: &str, most| describe_text(&text.to_owned().into(), most);
        assert_eq!(of_text(text, 1000), expected);
        assert_eq!(of_text(text, 40), "JSON, object of 3\n/rows: array of 2\n…");
        assert_eq!(of_text("{no\njson", 1000), "text, 2 lines");
        let wide = format!("[{}]", ["[]"; 5000].join(","));
        assert_eq!(of_text(&wide, 1000), "JSON, array of 5000\n/0: array of 0");
    }
}
