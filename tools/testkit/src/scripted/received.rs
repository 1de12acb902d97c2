//! A message that the scripted server received.

use crate::slicer;

/// An unchanged message.
#[derive(Debug)]
pub struct Received {
    /// The body of a POST, or a line. Empty for other HTTP methods.
    pub text: String,
    /// The headers, with names in lower case (HTTP only).
    pub headers: Vec<(String, String)>,
    /// The process that received it (stdio only).
    pub process: Option<u32>,
    /// The HTTP method, unless it is POST; otherwise the message's method.
    pub(super) method: String,
}

impl Received {
    pub(super) fn message(text: String, headers: Vec<(String, String)>) -> Self {
        let method = slicer::member(&text, "method")
            .and_then(slicer::plain_string)
            .unwrap_or_default()
            .to_owned();
        Self {
            text,
            headers,
            process: None,
            method,
        }
    }

    pub(super) fn line(text: String, process: u32) -> Self {
        Self {
            process: Some(process),
            ..Self::message(text, Vec::new())
        }
    }

    /// The method of the message, or for example `HTTP DELETE`.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Whether this is the response to a server request.
    pub fn is_response(&self) -> bool {
        self.method.is_empty()
    }

    /// The raw text of a member.
    pub fn member(&self, path: &str) -> Option<&str> {
        slicer::member(&self.text, path)
    }

    /// The raw text of a member whose name has dots.
    pub fn member_at(&self, path: &[&str]) -> Option<&str> {
        slicer::member_at(&self.text, path)
    }

    /// The first value of this header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn target(&self) -> Option<&str> {
        let name = self
            .member("params.name")
            .or_else(|| self.member("params.uri"));
        let name = name.or_else(|| self.member("params.taskId"))?;
        slicer::plain_string(name)
    }
}
