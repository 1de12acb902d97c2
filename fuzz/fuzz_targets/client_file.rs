#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fanlight_fuzz_targets::check("client_file", data));
