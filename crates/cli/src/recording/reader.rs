//! Reads the file of a recording.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use fanlight_telemetry::recording::{Ending, Head, Line, Loss, Message};

use crate::failure::Result;

/// The limit of a file, in bytes.
const LONGEST_FILE: u64 = 1 << 30;
/// The limit of a line, in bytes. It leaves room for the largest message, with escapes.
const LONGEST_LINE: u64 = 256 << 20;

/// A recording that was read from its file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The first line.
    pub head: Head,
    /// The messages of both sides, in the order of the file.
    pub messages: Vec<Message>,
    /// How much is missing, all in all.
    pub lost: Loss,
    /// Why it ended; `None` if the file was cut off.
    pub end: Option<Ending>,
}

impl Recording {
    /// Reads a file. A last line that was cut off does not count.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is too long, or a line is not one of a recording.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let file = File::open(path).map_err(|error| usage!("cannot read {shown}: {error}"))?;
        if file.metadata().is_ok_and(|file| file.len() > LONGEST_FILE) {
            let most = LONGEST_FILE >> 30;
            return Err(usage!("{shown} is longer than {most} GiB"));
        }
        Self::parse(BufReader::new(file.take(LONGEST_FILE)))
            .map_err(|problem| usage!("{shown}: {problem}"))
    }

    /// Reads a text with the same rules as a file.
    ///
    /// # Errors
    ///
    /// A sentence that names the line.
    pub fn parse(mut text: impl BufRead) -> Result<Self, String> {
        let mut recording = Self::default();
        let (mut line, mut number) = (Vec::new(), 0_usize);
        loop {
            line.clear();
            number += 1;
            let read = text
                .by_ref()
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line);
            let problem = |problem: &dyn std::fmt::Display| format!("line {number}: {problem}");
            read.map_err(|error| problem(&error))?;
            let is_cut = line.pop_if(|last| *last == b'\n').is_none();
            if is_cut && line.len() as u64 == LONGEST_LINE {
                return Err(problem(&"it is too long"));
            }
            let parsed = match std::str::from_utf8(&line) {
                _ if is_cut && line.is_empty() => break,
                Ok(text) => Line::parse(text).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match parsed {
                Err(_) if is_cut && number > 1 => break,
                Err(error) => return Err(problem(&error)),
                Ok(line) => recording.take(line, number)?,
            }
        }
        match recording.head.recording {
            0 => Err("it is empty: a recording begins with a line that has `recording`".to_owned()),
            _ => Ok(recording),
        }
    }

    fn take(&mut self, line: Line, number: usize) -> Result<(), String> {
        match line {
            Line::Head(head) if number == 1 => self.head = head,
            Line::Head(_) => return Err(format!("line {number}: a second head")),
            _ if number == 1 => {
                return Err("line 1: no recording begins so; `recording` is missing".to_owned());
            }
            Line::Message(message) => self.messages.push(*message),
            Line::Lost(lost) => {
                self.lost.messages += lost.lost.messages;
                self.lost.bytes += lost.lost.bytes;
            }
            Line::End(end) => self.end = Some(end.end),
            Line::Unknown => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fanlight_telemetry::recording::{
        Definitions, End, Framing, Lost, RecordedServer, Side, Text, To, VERSION, line,
    };
    use serde_json::Value;

    use super::*;

    /// The description of a recording's lines.
    const SCHEMA: &str = include_str!("../../../../config/recording.schema.json");

    fn written() -> Vec<Vec<u8>> {
        let tools = |text: &str| Definitions {
            tools: vec![text.to_owned()],
            ..Definitions::default()
        };
        let server = RecordedServer {
            revision: Some("2025-11-25".to_owned()),
            opening: Some("{}".to_owned()),
            definitions: tools(r#"{"name":"t"}"#),
            digests: tools(&"0".repeat(64)),
            masked: vec!["/definitions/tools/0/description".to_owned()],
        };
        let head = Head {
            recording: VERSION,
            fanlight: "1.0.0".to_owned(),
            started: "2026-01-01T00:00:00.000000Z".to_owned(),
            endpoint: Some("/mcp".to_owned()),
            servers: [
                ("a".to_owned(), server),
                ("b".to_owned(), Default::default()),
            ]
            .into(),
        };
        let client = Message {
            us: 1,
            side: Side::Client,
            endpoint: Some("/mcp".to_owned()),
            server: None,
            connection: 1,
            exchange: 1,
            to: To::Server,
            kind: Framing::Body,
            transport: "http".to_owned(),
            revision: None,
            method: Some("POST".to_owned()),
            status: None,
            headers: [("mcp-method".to_owned(), "ping".to_owned())].into(),
            content: Text::Text(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_owned()),
            masked: vec!["header:mcp-name".to_owned()],
            cause: None,
        };
        let server = Message {
            kind: Framing::Line,
            to: To::Client,
            transport: "stdio".to_owned(),
            revision: Some("2025-11-25".to_owned()),
            method: None,
            headers: Default::default(),
            content: Text::Base64("/w==".to_owned()),
            masked: Vec::new(),
            cause: Some(1),
            connection: 1,
            exchange: 1,
            us: 2,
            side: Side::Server,
            endpoint: None,
            status: None,
            server: Some("a".to_owned()),
        };
        let (messages, bytes) = (2, 30);
        let lost = Lost {
            us: 3,
            lost: Loss { messages, bytes },
        };
        let end = End {
            us: 4,
            end: Ending {
                reason: "time".to_owned(),
                whole: false,
                messages: 2,
            },
        };
        vec![
            line(&head),
            line(&client),
            line(&server),
            line(&lost),
            line(&end),
        ]
    }

    #[test]
    fn schema_describes_each_kind_of_line() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let is_valid = |value: &Value| validator.is_valid(value);
        for line in written() {
            let value: Value = serde_json::from_slice(&line).unwrap();
            assert!(is_valid(&value), "{value}");
            for member in ["side", "to", "kind", "connection", "us", "fanlight"] {
                let mut without = value.clone();
                if without.as_object_mut().unwrap().remove(member).is_some() {
                    assert!(!is_valid(&without), "{without}");
                }
            }
        }
    }

    #[test]
    fn file_is_read_as_it_was_written_and_without_its_end() {
        let written = written();
        let whole = Recording::parse(&*written.concat()).unwrap();
        assert_eq!((whole.messages.len(), whole.lost.messages), (2, 2));
        assert_eq!(whole.end.as_ref().map(|end| &*end.reason), Some("time"));
        assert_eq!(whole.messages[1].text(), None);
        let (head, first) = (written[0].len(), written[1].len());
        for end in head..=head + first {
            let cut = Recording::parse(&written.concat()[..end]).unwrap();
            // The line break is no part of the message.
            assert_eq!(cut.messages.len(), usize::from(end >= head + first - 1));
            assert_eq!(cut.end, None);
        }
    }

    #[test]
    fn unusable_line_is_named() {
        let head = String::from_utf8(written()[0].clone()).unwrap();
        let problem = |text: &str| Recording::parse(text.as_bytes()).unwrap_err();
        assert!(problem(&format!("{head}\n{{}}\n")).starts_with("line 2: "));
        assert!(problem(&format!("{head}{{\"us\":1,\"side\":\"x\"}}\n")).starts_with("line 2: "));
        assert!(problem(&format!("{head}{head}")).starts_with("line 2: a second head"));
        assert!(problem("{}\n").starts_with("line 1: "));
        assert!(
            problem("{\"recording\":9,\"fanlight\":\"\",\"started\":\"\"}\n").contains("version 9")
        );
        assert!(problem("").contains("empty"));
        // A recording without a whole first line has nothing to play.
        assert!(problem(&head[..20]).starts_with("line 1: "));
    }
}
