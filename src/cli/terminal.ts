import { createInterface } from 'node:readline'
import { type Command, InvalidArgumentError } from 'commander'
import type { CommandResult } from '../cli.ts'
import { asciiOnly, type OutputOptions } from './output.ts'

// Where a command is run: on a terminal, before a person, or in a pipe.

/** How a command talks while it runs; its data goes to stdout at the end. */
export interface Conversation {
  /** Says something on stderr. */
  say(text: string): void
  /** Whether a person watches, so that a line may be written over itself. */
  isWatched: boolean
  /** Asks the person at the terminal; undefined is a Ctrl-C, or the end of the input. Absent where nobody can answer. */
  ask?: ((question: string) => Promise<string | undefined>) | undefined
  /** Aborted by Ctrl-C; a second one ends the process. */
  interrupted?: AbortSignal | undefined
}

export const INTERRUPTED = 130

/** The options that every command with output for people has. */
export function withOutput(command: Command, { isTable = false } = {}): Command {
  command.option('--json', "the API's own object, nothing else").option('--local', "times of this machine's zone, not UTC")
  if (isTable) command.option('--wide', 'as wide as it gets: shorten nothing')
  return command.option('--no-color', 'no colours')
}

/** How this terminal wants its output, and how to talk to whoever sits there. */
export function terminal(options: {
  color?: boolean
  local?: boolean
  wide?: boolean
  json?: boolean
}): OutputOptions & Conversation {
  const isTTY = process.stdout.isTTY === true
  const { NO_COLOR, TERM } = process.env
  return {
    width: isTTY ? (options.wide ? Number.POSITIVE_INFINITY : process.stdout.columns || 80) : undefined,
    color: isTTY && options.color !== false && !NO_COLOR && TERM !== 'dumb',
    unicode: isUnicode(),
    zone: options.local ? new Intl.DateTimeFormat().resolvedOptions().timeZone : undefined,
    json: options.json,
    say: (text) => void process.stderr.write(forStream(text, process.stderr.isTTY)),
    isWatched: process.stderr.isTTY === true && TERM !== 'dumb',
    ask: process.stdin.isTTY && process.stderr.isTTY ? ask : undefined,
  }
}

/** Says what a command answers. */
export function finish({ stdout, stderr, exitCode }: CommandResult, options: { json?: boolean | undefined } = {}): void {
  process.stdout.write(forStream(stdout, process.stdout.isTTY, options))
  process.stderr.write(forStream(stderr, process.stderr.isTTY))
  process.exitCode = exitCode
}

/** A signal for a command that has something to say when it is interrupted. */
export function interruption(): AbortSignal {
  const controller = new AbortController()
  process.once('SIGINT', () => controller.abort())
  return controller.signal
}

/** A number as an option has it. */
export function wholeNumber(text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text)) throw new InvalidArgumentError('a whole number from 1 to 9999')
  return Number(text)
}

function isUnicode(): boolean {
  const { LC_ALL, LC_CTYPE, LANG } = process.env
  return /utf-?8/i.test(LC_ALL || LC_CTYPE || LANG || '')
}

/** A pipe gets its text as it is; a terminal that isn't told to take UTF-8 may read parts of it as commands. */
function forStream(text: string, isTTY: boolean, { json }: { json?: boolean | undefined } = {}): string {
  return isTTY && !isUnicode() ? asciiOnly(text, json === true) : text
}

function ask(question: string): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>()
  const reader = createInterface({ input: process.stdin, output: process.stderr })
  reader.once('SIGINT', () => reader.close())
  reader.once('close', () => resolve(undefined))
  reader.question(forStream(question, process.stderr.isTTY), (answer) => {
    resolve(answer)
    reader.close()
  })
  return promise
}
