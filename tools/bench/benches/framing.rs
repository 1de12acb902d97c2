//! Splitting streams into messages, and writing events.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fanlight_protocol::line::LineDecoder;
use fanlight_protocol::sse::{EventDecoder, encode_message};

criterion_group!(benches, decode_events, encode_events, decode_lines);
criterion_main!(benches);

const LIMIT: usize = 64 << 20;

/// Messages in one decoded buffer.
const MESSAGES: u64 = 64;

/// Bytes that arrive at once: a small packet, a full network packet, a whole buffer.
const PIECES: [usize; 3] = [150, 1448, 64 << 10];

fn notification() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"token","progress":17,"total":100,"message":"123456789012345"}}"#
        .to_vec()
}

fn decode_events(criterion: &mut Criterion) {
    let stream = encode_message(&notification()).repeat(64);
    let mut group = criterion.benchmark_group("decode events, a piece at a time");
    group.throughput(Throughput::Elements(MESSAGES));
    for piece in PIECES {
        group.bench_with_input(
            BenchmarkId::from_parameter(piece),
            &piece,
            |bencher, piece| {
                bencher.iter(|| {
                    let mut decoder = EventDecoder::new(LIMIT);
                    let mut count = 0;
                    for piece in black_box(&stream).chunks(*piece) {
                        decoder.push(piece);
                        while let Ok(Some(_)) = decoder.next_event() {
                            count += 1;
                        }
                    }
                    count
                });
            },
        );
    }
}

fn encode_events(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode an event");
    for message in [notification(), vec![b'x'; 1 << 20]] {
        group.throughput(Throughput::Bytes(message.len() as u64));
        group.bench_with_input(
            BenchmarkId::from_parameter(message.len()),
            &message,
            |bencher, message| {
                bencher.iter(|| encode_message(black_box(message)));
            },
        );
    }
}

fn decode_lines(criterion: &mut Criterion) {
    let mut line = notification();
    line.push(b'\n');
    let stream = line.repeat(64);
    let mut group = criterion.benchmark_group("decode lines, a piece at a time");
    group.throughput(Throughput::Elements(MESSAGES));
    for piece in PIECES {
        group.bench_with_input(
            BenchmarkId::from_parameter(piece),
            &piece,
            |bencher, piece| {
                bencher.iter(|| {
                    let mut decoder = LineDecoder::new(LIMIT);
                    let mut count = 0;
                    for piece in black_box(&stream).chunks(*piece) {
                        decoder.buffer_mut().extend_from_slice(piece);
                        while decoder.next_line().is_some() {
                            count += 1;
                        }
                    }
                    count
                });
            },
        );
    }
}
