//! Builds the JSON that Fanlight itself creates, from raw members.

use std::io::Write as _;

use bytes::Bytes;

use super::{Json, string};

/// `text` as a quoted JSON string.
pub fn quote(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    string::encode_into(&mut out, text);
    out
}

/// The part of a JSON Pointer for a member (RFC 6901, 3).
pub fn pointer_step(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The name of the member in a part of a JSON Pointer (RFC 6901, 4).
pub fn pointer_name(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Builds an object member by member.
#[derive(Clone, Debug)]
pub struct ObjectBuilder(Vec<u8>);

impl Default for ObjectBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ObjectBuilder {
    /// An object without members.
    pub fn new() -> Self {
        Self(vec![b'{'])
    }

    /// An object without members, with a capacity of `bytes` bytes besides the braces. With the
    /// right capacity, a value that is kept for long takes no more memory than its text.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut out = Vec::with_capacity(bytes + 2);
        out.push(b'{');
        Self(out)
    }

    /// Whether no member has been added.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 1
    }

    /// Adds a member; `value` keeps its bytes.
    pub fn member(&mut self, key: &str, value: &Json) -> &mut Self {
        self.key(key);
        self.0.extend_from_slice(value.bytes());
        self
    }

    /// Adds a member whose key is given as received, including quotes and escapes.
    pub fn raw_member(&mut self, quoted_key: &Json, value: &Json) -> &mut Self {
        self.comma();
        self.0.extend_from_slice(quoted_key.bytes());
        self.0.push(b':');
        self.0.extend_from_slice(value.bytes());
        self
    }

    /// Adds a string member.
    pub fn string(&mut self, key: &str, value: &str) -> &mut Self {
        self.key(key);
        string::encode_into(&mut self.0, value);
        self
    }

    /// Adds an integer member.
    pub fn integer(&mut self, key: &str, value: i64) -> &mut Self {
        self.key(key);
        // Writing to a `Vec` cannot fail.
        _ = write!(self.0, "{value}");
        self
    }

    /// Adds a member, if it has a value.
    pub fn optional(&mut self, key: &str, value: Option<&Json>) -> &mut Self {
        if let Some(value) = value {
            self.member(key, value);
        }
        self
    }

    /// Adds a string member, if it has a value.
    pub fn optional_string(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        self.optional(key, value.map(Json::string).as_ref())
    }

    /// The finished object. The builder must not be used afterwards.
    #[must_use]
    pub fn finish(&mut self) -> Json {
        self.0.push(b'}');
        Json::from_trusted(Bytes::from(std::mem::take(&mut self.0)))
    }

    fn key(&mut self, key: &str) {
        self.comma();
        string::encode_into(&mut self.0, key);
        self.0.push(b':');
    }

    fn comma(&mut self) {
        if !self.is_empty() {
            self.0.push(b',');
        }
    }
}

impl Json {
    /// An array of these elements.
    pub fn array(elements: impl IntoIterator<Item = Self>) -> Self {
        let mut array = ArrayBuilder::default();
        for element in elements {
            array.push(&element);
        }
        array.finish()
    }

    /// An array of strings.
    pub fn strings<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::array(texts.into_iter().map(Self::string))
    }
}

/// Builds an array element by element.
#[derive(Debug)]
pub struct ArrayBuilder(Vec<u8>);

impl Default for ArrayBuilder {
    fn default() -> Self {
        Self::with_capacity(64)
    }
}

impl ArrayBuilder {
    /// An empty array with a capacity of `bytes` bytes of text.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut out = Vec::with_capacity(bytes + 2);
        out.push(b'[');
        Self(out)
    }

    /// Adds an element; `value` keeps its bytes.
    pub fn push(&mut self, value: &Json) -> &mut Self {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.extend_from_slice(value.bytes());
        self
    }

    /// The finished array. The builder must not be used afterwards.
    #[must_use]
    pub fn finish(&mut self) -> Json {
        self.0.push(b']');
        Json::from_trusted(Bytes::from(std::mem::take(&mut self.0)))
    }
}
