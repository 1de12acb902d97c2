//! Event ids: "globally unique across all streams within that session", with "sufficient
//! information to identify the originating stream" (2025-11-25 basic/transports, Resumability and
//! Redelivery).
//!
//! An event id is not sealed, which would cost more than the event. It is valid only in a request
//! that names its session, and the session id is sealed. A tag in the event id rejects ids of other
//! sessions, other principals and earlier runs. A client that changes the rest names another event
//! of its own session.

use fanlight_protocol::seal::Tag;

/// The id of an event, valid only within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    pub(crate) is_get: bool,
    pub(crate) stream: u64,
    /// The event's position on the stream; 0 is before the first event.
    pub(crate) position: u64,
    /// The session's tag.
    pub(crate) tag: Tag,
}

impl EventId {
    /// Parses an event id; `None` for any other text.
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let (is_get, rest) = match id.strip_prefix("get") {
            Some(rest) => (true, rest),
            None => (false, id.strip_prefix("post")?),
        };
        let (stream, rest) = rest.split_once('-')?;
        let (position, tag) = rest.split_once('-')?;
        let number = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| text.parse().ok())?
        };
        Some(Self {
            is_get,
            stream: number(stream)?,
            position: number(position)?,
            tag: tag.as_bytes().try_into().ok()?,
        })
    }

    /// Passes the pieces of the id to `put`.
    pub(crate) fn write(self, mut put: impl FnMut(&[u8])) {
        let (mut stream, mut position) = (itoa::Buffer::new(), itoa::Buffer::new());
        let kind = if self.is_get { "get" } else { "post" };
        for text in [
            kind,
            stream.format(self.stream),
            "-",
            position.format(self.position),
            "-",
        ] {
            put(text.as_bytes());
        }
        put(&self.tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_id_survives_writing_and_parsing() {
        for (is_get, text) in [(true, "get3-17-tag-_Tag"), (false, "post3-17-tag-_Tag")] {
            let id = EventId {
                is_get,
                stream: 3,
                position: 17,
                tag: *b"tag-_Tag",
            };
            let mut out = Vec::new();
            id.write(|piece| out.extend_from_slice(piece));
            assert_eq!(
                (out.as_slice(), EventId::parse(text)),
                (text.as_bytes(), Some(id))
            );
        }
        for id in [
            "",
            "get",
            "get3",
            "get3-",
            "get-3",
            "get3-+1",
            "put3-1",
            "get3-1",
            "post99999999999999999999-1",
        ] {
            for id in [id.to_owned(), format!("{id}-tag")] {
                assert_eq!(EventId::parse(&id), None, "{id}");
            }
        }
        for id in [
            "get3-+1-tag-_Tag",
            "put3-1-tag-_Tag",
            "get3-1-1-tag-_Tag",
            "post99999999999999999999-1-tag-_Tag",
        ] {
            assert_eq!(EventId::parse(id), None, "{id}");
        }
    }
}
