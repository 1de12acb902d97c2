// Small media and constructors for the content blocks of tools and prompts.

export const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==';

/** A WAV file of eight silent samples. */
export const WAV = wav(8).toString('base64');

export const text = (value) => ({ type: 'text', text: value });
export const image = () => ({ type: 'image', data: PNG, mimeType: 'image/png' });
export const audio = () => ({ type: 'audio', data: WAV, mimeType: 'audio/wav' });
export const resource = (uri, mimeType, body) => ({ type: 'resource', resource: { uri, mimeType, text: body } });
export const answer = (...content) => ({ content });

function wav(samples) {
  const header = Buffer.alloc(44);
  header.write('RIFF', 0);
  header.writeUInt32LE(36 + samples, 4);
  header.write('WAVEfmt ', 8);
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20); // PCM
  header.writeUInt16LE(1, 22); // mono
  header.writeUInt32LE(8000, 24);
  header.writeUInt32LE(8000, 28);
  header.writeUInt16LE(1, 32);
  header.writeUInt16LE(8, 34);
  header.write('data', 36);
  header.writeUInt32LE(samples, 40);
  return Buffer.concat([header, Buffer.alloc(samples, 0x80)]);
}
