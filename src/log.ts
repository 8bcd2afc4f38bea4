import { writeSync } from 'node:fs'
import pino from 'pino'

export type Log = pino.Logger

/**
 * One JSON line per fact on stdout. What goes in are names, ids, counts and reasons; bodies, secrets and email addresses
 * never do. The redaction is the second line of defence, for objects that bring such fields along. With `gathers` the lines of one
 * turn of the event loop are written together: for a process whose lines prove nothing that its tables don't.
 */
export function createLog(level: string, name: string, { gathers = false } = {}): Log {
  const options: pino.LoggerOptions = {
    level,
    base: { process: name, pid: process.pid },
    timestamp: isoTime,
    // People may go by their address.
    formatters: {
      level: (label) => ({ level: label }),
      log: (line) => (typeof line.by === 'string' ? { ...line, by: maskAddresses(line.by) } : line),
    },
    redact: {
      paths: [
        'headers',
        'body',
        'message.to',
        'to',
        'recipient',
        'email',
        'token',
        'secret',
        'secrets',
        'apiKey',
        'authorization',
      ],
      censor: '[redacted]',
    },
    serializers: { error: describeError },
  }
  return pino(options, gathers ? gatheringStdout() : stdout)
}

let second = Number.NaN
let written = ''
/** The library's own writes the date of each line anew, which takes half of the time of a line. */
function isoTime(): string {
  const now = Date.now()
  const ms = now - Math.floor(now / 1_000) * 1_000
  if (now - ms !== second) {
    second = now - ms
    written = new Date(second).toISOString().slice(0, -'000Z'.length)
  }
  return `,"time":"${written}${String(ms).padStart(3, '0')}Z"`
}

/**
 * Writes each line at once, so that none is lost in a crash. Not the library's own destination: that one writes later, and when the
 * reader has gone it tries to write its last line for ever, so that the process never ends.
 */
const stdout = {
  write(line: string): void {
    try {
      for (let rest = Buffer.from(line); rest.length > 0; ) rest = rest.subarray(writeSync(1, rest))
    } catch {
      // Nobody reads any more, or too slowly: the service goes on without.
    }
  },
}

function gatheringStdout(): typeof stdout {
  let lines = ''
  const flush = () => {
    const text = lines
    lines = ''
    if (text !== '') stdout.write(text)
  }
  // Whatever ends the process, but for a kill, comes by here.
  process.on('exit', flush)
  return {
    write(line) {
      if (lines === '') setImmediate(flush)
      lines += line
    },
  }
}

/** What may be logged of an error: its class, code, text and stack; never properties that hold a query's values. */
export function describeError(error: unknown): Record<string, unknown> {
  // The job library reports errors as plain objects with an error's fields.
  if (typeof error !== 'object' || error === null || !('message' in error)) return { text: maskAddresses(String(error)) }
  const { name, code, constraint, message, stack } = error as Partial<Error> & { code?: unknown; constraint?: unknown }
  return {
    ...(name === undefined ? {} : { name }),
    ...(code === undefined ? {} : { code }),
    ...(constraint === undefined ? {} : { constraint }),
    text: maskAddresses(String(message)),
    stack: maskAddresses(stack?.split('\n').slice(1).join('\n') ?? ''),
  }
}

/** A text without email addresses. */
export function maskAddresses(text: string): string {
  return text.slice(0, 4_000).replace(/[^\s"'<>(),;:@]{1,64}@[^\s"'<>(),;:@]{1,255}/g, '[address]')
}
