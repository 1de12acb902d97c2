//! Limits HTTP/2 frames that cost the server more than the client. Settings and pings need an
//! answer (CVE-2019-9512 and 9515); priorities and unknown frames are only read. Clients need few
//! of them, and hyper does not limit them.

use std::time::Duration;

use tokio::time::Instant;

/// The maximum number of such frames in one [`INTERVAL`]. Clients send a few settings at the start,
/// and a ping every few seconds.
const MOST: usize = 1000;
/// The time over which frames are counted.
const INTERVAL: Duration = Duration::from_secs(10);

/// The length of a frame's head (RFC 9113, 4.1).
const HEAD: usize = 9;
const DATA: u8 = 0;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// The last frame type of RFC 9113.
const CONTINUATION: u8 = 9;
/// The flag of the last frame of a stream.
const END_STREAM: u8 = 1;

/// Counts control frames in the bytes that a client sends.
#[derive(Debug)]
pub(super) struct ControlFrames {
    /// The remaining bytes before the next head: the preface, or the content of a frame.
    skipped: usize,
    head: [u8; HEAD],
    filled: usize,
    count: usize,
    since: Instant,
}

/// The client has sent too many control frames.
#[derive(Debug, thiserror::Error)]
#[error("more than {MOST} control frames in {INTERVAL:?}")]
pub(super) struct TooMany;

impl ControlFrames {
    /// Counts frames after a preface of this many bytes.
    pub(super) fn new(preface: usize) -> Self {
        Self {
            skipped: preface,
            head: [0; HEAD],
            filled: 0,
            count: 0,
            since: Instant::now(),
        }
    }

    /// Scans the client's next bytes.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> Result<(), TooMany> {
        while let Some((byte, rest)) = bytes.split_first() {
            if self.skipped > 0 {
                let skipped = self.skipped.min(bytes.len());
                self.skipped -= skipped;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            if let Some(place) = self.head.get_mut(self.filled) {
                *place = *byte;
            }
            self.filled += 1;
            bytes = rest;
            if self.filled == HEAD {
                self.filled = 0;
                self.frame()?;
            }
        }
        Ok(())
    }

    fn frame(&mut self) -> Result<(), TooMany> {
        let [high, middle, low, kind, flags, ..] = self.head;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.skipped = length;
        let is_empty_data = kind == DATA && length == 0 && flags & END_STREAM == 0;
        if !is_empty_data && !matches!(kind, PRIORITY | SETTINGS | PING) && kind <= CONTINUATION {
            return Ok(());
        }
        self.count += 1;
        if self.count <= MOST {
            return Ok(());
        }
        if self.since.elapsed() < INTERVAL {
            return Err(TooMany);
        }
        (self.count, self.since) = (1, Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
        [
            &[
                0,
                0,
                u8::try_from(content.len()).unwrap(),
                kind,
                0,
                0,
                0,
                0,
                0,
            ][..],
            content,
        ]
        .concat()
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_counted_however_they_are_cut() {
        let ping = frame(PING, b"01234567");
        let bytes = [
            b"PRI".to_vec(),
            [frame(1, &[PING; 40]), ping].concat().repeat(MOST),
        ]
        .concat();
        for size in [1, 7, 1000, bytes.len()] {
            let mut frames = ControlFrames::new(3);
            assert!(bytes.chunks(size).all(|piece| frames.take(piece).is_ok()));
            frames.take(&frame(1, b"")).unwrap();
            assert!(frames.take(&frame(SETTINGS, b"")).is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn control_frames_are_counted_over_a_time() {
        let mut frames = ControlFrames::new(0);
        for _ in 0..5 {
            frames.take(&frame(0xfa, b"x").repeat(MOST)).unwrap();
            tokio::time::advance(INTERVAL).await;
        }
        assert!(frames.take(&frame(0, b"").repeat(MOST + 1)).is_err());
    }
}
