//! Counts the lines of a stdio client against the memory for requests. A line counts from its first
//! bytes until the last part of its text is dropped.

use fanlight_canonical::Peer;
use fanlight_protocol::line::{Line, LineDecoder};
use fanlight_protocol::{Json, partial};

use crate::memory::{ByteBudget, Reservation, UNCOUNTED};

/// The memory of one connection's incoming lines.
pub(super) struct LineMemory<'a> {
    budget: &'a ByteBudget,
    /// The reservation for an unfinished line that exceeds the uncounted size.
    partial: Option<Reservation>,
    /// Whether the unfinished line is being dropped for lack of memory.
    is_dropping: bool,
}

/// No memory was left for a line.
pub(super) struct NoMemory {
    /// The id of the line's request, if it was readable.
    pub(super) id: Option<Json>,
}

impl<'a> LineMemory<'a> {
    pub(super) fn new(budget: &'a ByteBudget) -> Self {
        Self {
            budget,
            partial: None,
            is_dropping: false,
        }
    }

    /// Counts a complete line.
    pub(super) fn count(&mut self, line: Line) -> Result<Line, NoMemory> {
        let partial = self.partial.take();
        let text = match line {
            Line::TooLong { head, tail, .. } if std::mem::take(&mut self.is_dropping) => {
                return Err(NoMemory {
                    id: partial::id(&head, &tail),
                });
            }
            Line::Whole(text) if text.len() > UNCOUNTED => text,
            line => return Ok(line),
        };
        let reserved = match partial {
            Some(mut reservation) => reservation.resize(text.len()).map(|()| reservation),
            None => self.budget.reserve(&Peer::Local, text.len()),
        };
        match reserved {
            Ok(reservation) => Ok(Line::Whole(reservation.hold(text))),
            Err(_) => Err(NoMemory {
                id: partial::id(&text, &text),
            }),
        }
    }

    /// Counts an unfinished line, or drops it if no memory is left.
    pub(super) fn count_partial(&mut self, decoder: &mut LineDecoder) {
        let kept = decoder.kept();
        let fits = match &mut self.partial {
            _ if kept <= UNCOUNTED => {
                self.partial = None;
                true
            }
            Some(reservation) => reservation.resize(kept).is_ok(),
            None => {
                self.partial = self.budget.reserve(&Peer::Local, kept).ok();
                self.partial.is_some()
            }
        };
        if !fits {
            decoder.drop_line();
            (self.partial, self.is_dropping) = (None, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(
        decoder: &mut LineDecoder,
        memory: &mut LineMemory<'_>,
        bytes: &[u8],
    ) -> Vec<Result<Line, NoMemory>> {
        let mut lines = Vec::new();
        for piece in bytes.chunks(1 << 10) {
            decoder.buffer_mut().extend_from_slice(piece);
            while let Some(line) = decoder.next_line() {
                lines.push(memory.count(line));
            }
            memory.count_partial(decoder);
        }
        lines
    }

    #[test]
    fn line_without_memory_is_dropped_and_names_its_request() {
        let budget = ByteBudget::new(20 << 10);
        let (mut decoder, mut memory) = (LineDecoder::new(1 << 20), LineMemory::new(&budget));
        let line = |id: u32, len: usize| format!("{{\"id\":{id},\"x\":\"{}\"}}\n", "x".repeat(len));
        let first = feed(&mut decoder, &mut memory, line(1, 9 << 10).as_bytes());
        assert!(matches!(&first[..], [Ok(Line::Whole(text))] if text.len() > 9 << 10));
        // The first line uses up the peer's share.
        let second = feed(&mut decoder, &mut memory, line(2, 9 << 10).as_bytes());
        assert!(matches!(&second[..], [Err(NoMemory { id: Some(id) })] if id.as_text() == "2"));
        let small = feed(&mut decoder, &mut memory, line(3, 10).as_bytes());
        assert!(matches!(&small[..], [Ok(Line::Whole(_))]));
        drop(first);
        let third = feed(&mut decoder, &mut memory, line(4, 15 << 10).as_bytes());
        assert!(matches!(&third[..], [Ok(Line::Whole(_))]));
    }
}
