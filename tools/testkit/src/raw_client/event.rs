//! One event of an event stream, with all its fields.

/// The text between two empty lines of an event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The id to resume after; `Some("")` resets it (WHATWG HTML, Server-sent events).
    pub id: Option<String>,
    /// The event type.
    pub kind: Option<String>,
    /// The delay before reconnecting, in milliseconds.
    pub retry: Option<u64>,
    /// The joined data lines; empty if there are none, as in a comment or a priming event.
    pub data: String,
    /// Lines that begin with a colon, such as keep-alives.
    pub comments: Vec<String>,
}

impl Event {
    /// Parses `text`, which has no carriage returns and ends with an empty line.
    pub(super) fn parse(text: &str) -> Self {
        let mut event = Self::default();
        let mut data = Vec::new();
        for line in text.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if !line.is_empty() => event.comments.push(value.to_owned()),
                "id" => event.id = Some(value.to_owned()),
                "event" => event.kind = Some(value.to_owned()),
                "retry" => event.retry = value.parse().ok(),
                "data" => data.push(value),
                _ => {}
            }
        }
        event.data = data.join("\n");
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_fields_are_read_and_data_is_joined() {
        let event = Event::parse("id: 1\nevent: message\nretry: 250\n: alive\ndata: a\ndata:b\n\n");
        assert_eq!(
            (event.id.as_deref(), event.kind.as_deref(), event.retry),
            (Some("1"), Some("message"), Some(250))
        );
        assert_eq!(
            (event.data.as_str(), event.comments.as_slice()),
            ("a\nb", ["alive".to_owned()].as_slice())
        );
    }

    #[test]
    fn comments_and_priming_events_have_no_data() {
        assert_eq!(Event::parse(": keep-alive\n\n").data, "");
        let priming = Event::parse("id: 0\ndata:\n\n");
        assert_eq!(
            (priming.id.as_deref(), priming.data.as_str()),
            (Some("0"), "")
        );
        assert_eq!(Event::parse("id\n\n").id.as_deref(), Some(""));
    }
}
