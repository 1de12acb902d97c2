// Escapes invisible characters in texts of peers, and characters that change how other text looks.

/**
 * Invisible and formatting characters besides control characters, as inclusive ranges. The log and the command line
 * escape the same ones; a test compares the lists.
 */
const HIDDEN = [
  [0xad, 0xad], [0x34f, 0x34f], [0x600, 0x605], [0x61c, 0x61c], [0x6dd, 0x6dd], [0x70f, 0x70f], [0x890, 0x891], [0x8e2, 0x8e2],
  [0x115f, 0x1160], [0x17b4, 0x17b5], [0x180b, 0x180f], [0x200b, 0x200f], [0x2028, 0x202e], [0x2060, 0x206f], [0x3164, 0x3164],
  [0xfe00, 0xfe0d], [0xfeff, 0xfeff], [0xffa0, 0xffa0], [0xfff0, 0xfffb], [0x110bd, 0x110bd], [0x110cd, 0x110cd],
  [0x13430, 0x1343f], [0x1bca0, 0x1bca3], [0x1d173, 0x1d17a], [0xe0000, 0xe0fff],
];

/** Control characters other than line breaks and tabs. */
const CONTROLS = "\\u{0}-\\u{8}\\u{b}-\\u{1f}\\u{7f}-\\u{9f}";
const ALL = HIDDEN.map(([first, last]) => `\\u{${first.toString(16)}}-\\u{${last.toString(16)}}`).join("");
const PATTERN = new RegExp(`[${CONTROLS}${ALL}]`, "gu");

/** The text with a JSON escape for each such character. */
export function visible(text) {
  return text.replace(PATTERN, (found) =>
    Array.from({ length: found.length }, (_, at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, "0")}`).join(""));
}
