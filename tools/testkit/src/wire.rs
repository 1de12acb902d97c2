//! The protocol between a test and its `scripted-stdio` child.
//!
//! The child connects to the test over loopback TCP, and sends its process id as one line and then
//! all of its standard input. The test sends frames: one byte of [`Command`], four bytes of length
//! (big endian), the payload. So scripts, gates and records are all in the test, and the child only
//! forwards bytes.

/// A command to the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Command {
    /// Write the payload to standard output.
    Stdout = 1,
    /// Write the payload to standard error.
    Stderr = 2,
    /// Exit at once; the payload is one byte, the exit code.
    Exit = 3,
    /// Send SIGKILL to itself; without a payload.
    Kill = 4,
}

impl Command {
    /// The command with this number.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Stdout, Self::Stderr, Self::Exit, Self::Kill]
            .into_iter()
            .find(|command| *command as u8 == byte)
    }
}

/// The header of a frame: command and payload length.
pub fn frame_head(command: Command, length: u32) -> [u8; 5] {
    let [a, b, c, d] = length.to_be_bytes();
    [command as u8, a, b, c, d]
}

/// Decodes a header; `None` if it contains no known command.
pub fn parse_head(head: [u8; 5]) -> Option<(Command, u32)> {
    let [command, a, b, c, d] = head;
    Some((
        Command::from_byte(command)?,
        u32::from_be_bytes([a, b, c, d]),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_round_trips() {
        for command in [
            Command::Stdout,
            Command::Stderr,
            Command::Exit,
            Command::Kill,
        ] {
            assert_eq!(
                parse_head(frame_head(command, 50 << 20)),
                Some((command, 50 << 20))
            );
        }
        assert_eq!(parse_head([9, 0, 0, 0, 0]), None);
    }
}
