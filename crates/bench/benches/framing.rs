//! What it takes to cut streams into messages, and to write events.

use divan::{Bencher, black_box};
use fanlight_protocol::line::LineDecoder;
use fanlight_protocol::sse::{EventDecoder, encode_message};

fn main() {
    divan::main();
}

const LIMIT: usize = 64 << 20;

/// Messages in what is decoded at once.
const MESSAGES: usize = 64;

fn notification() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"token","progress":17,"total":100,"message":"123456789012345"}}"#
        .to_vec()
}

/// Bytes that arrive at once: a small packet, one of a network, a whole buffer.
const PIECES: [usize; 3] = [150, 1448, 64 << 10];

#[divan::bench(args = PIECES)]
fn decode_events(bencher: Bencher<'_, '_>, piece: usize) {
    let stream = encode_message(&notification()).repeat(MESSAGES);
    bencher.counter(divan::counter::ItemsCount::new(MESSAGES)).bench(|| {
        let mut decoder = EventDecoder::new(LIMIT);
        let mut count = 0;
        for piece in black_box(&stream).chunks(piece) {
            decoder.push(piece);
            while let Ok(Some(_)) = decoder.next_event() {
                count += 1;
            }
        }
        count
    });
}

#[divan::bench]
fn encode_event(bencher: Bencher<'_, '_>) {
    let message = notification();
    bencher.bench(|| encode_message(black_box(&message)));
}

#[divan::bench]
fn encode_event_of_1_mib(bencher: Bencher<'_, '_>) {
    let message = vec![b'x'; 1 << 20];
    bencher.counter(divan::counter::BytesCount::new(message.len())).bench(|| encode_message(black_box(&message)));
}

#[divan::bench(args = PIECES)]
fn decode_lines(bencher: Bencher<'_, '_>, piece: usize) {
    let mut line = notification();
    line.push(b'\n');
    let stream = line.repeat(MESSAGES);
    bencher.counter(divan::counter::ItemsCount::new(MESSAGES)).bench(|| {
        let mut decoder = LineDecoder::new(LIMIT);
        let mut count = 0;
        for piece in black_box(&stream).chunks(piece) {
            decoder.buffer_mut().extend_from_slice(piece);
            while decoder.next_line().is_some() {
                count += 1;
            }
        }
        count
    });
}
