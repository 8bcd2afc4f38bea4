import { type Html, html } from './html.ts'
import { indented } from './json-text.ts'

/** So many bytes of a body are shown; all of it is in the download. */
const MOST_BYTES = 65_536
const MOST_INDENTED = 400_000
const HEX_BYTES = 4_096
const HEX_PER_LINE = 16

/** A body for reading: JSON indented with every character as it was sent, other text as it is, and what is no text in hexadecimal. */
export function prettyBody(body: Buffer): Html {
  const text = textOf(body.subarray(0, MOST_BYTES))
  if (text === undefined) return hexBody(body)
  const pretty = (body.length <= MOST_BYTES ? indented(text) : undefined) ?? text
  return html`<pre class="body" tabindex="0">${pretty.slice(0, MOST_INDENTED)}</pre>${cut(body.length, MOST_BYTES)}`
}

/** The first bytes as they are. */
export function hexBody(body: Buffer): Html {
  const lines: string[] = []
  for (let at = 0; at < Math.min(body.length, HEX_BYTES); at += HEX_PER_LINE) {
    const bytes = body.subarray(at, Math.min(at + HEX_PER_LINE, HEX_BYTES))
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join(' ')
    const text = [...bytes].map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.')).join('')
    lines.push(`${at.toString(16).padStart(4, '0')}  ${hex.padEnd(HEX_PER_LINE * 3 - 1)}  ${text}`)
  }
  return html`<pre class="body" tabindex="0">${lines.join('\n')}</pre>${cut(body.length, HEX_BYTES)}`
}

/** A body's text for comparing; undefined where it is none. */
export function comparable(body: Buffer): string | undefined {
  const text = textOf(body.subarray(0, MOST_BYTES))
  return text === undefined ? undefined : (indented(text) ?? text)
}

const cut = (length: number, shown: number) =>
  length > shown &&
  html`<p class="hint">The first ${shown.toLocaleString('en-US')} of ${length.toLocaleString('en-US')} bytes; all of them are in the download.</p>`

function textOf(bytes: Buffer): string | undefined {
  const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
  // A character that was cut at the end is no sign of bytes that aren't text.
  return text.replace(/\ufffd{1,3}$/, '').includes('\ufffd') || text.includes('\0') ? undefined : text
}
