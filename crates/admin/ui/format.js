// Readable times and sizes.

/** Milliseconds as a duration. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return long(ms / 1000);
}

/** Seconds as days, hours, minutes: the two largest units. */
export function long(seconds) {
  const units = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
  let left = Math.max(0, Math.floor(seconds));
  const parts = [];
  for (const [unit, size] of units) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0 || (unit === "s" && parts.length === 0)) parts.push(`${count} ${unit}`);
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** A moment with its date, in the time zone of the browser; sorts as text. */
export function clock(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
  return `${date} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":")}`;
}

/** A number with separators. */
export function count(number) {
  return Number(number).toLocaleString();
}

/** Bytes. */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KiB", "MiB", "GiB"];
  let value = bytes;
  let unit = -1;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}

/** A share, from 0 to 1. */
export function percent(share) {
  return `${Number((share * 100).toFixed(2))} %`;
}

/** "1 span", "2 spans". */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
