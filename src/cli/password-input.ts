import type { ReadStream } from 'node:tty'
import { newPassword } from '../ops/passwords.ts'

const MOST_BYTES = 4_096
const ENDS = ['\r', '\n', '\u0004']
const INTERRUPT = '\u0003'
const ERASERS = ['\u007f', '\b']

/** Where a new password comes from; `problem` says why there is none. */
export type PasswordInput = { password: string } | { problem: string }

/** A new password from a pipe, its first line alone, or asked for twice at the terminal, where it isn't shown. */
export async function readNewPassword(
  input: NodeJS.ReadStream,
  output: NodeJS.WritableStream,
  fromPipe: boolean,
): Promise<PasswordInput> {
  if (fromPipe) return checked(await firstLine(input))
  if (!input.isTTY) return { problem: 'there is no terminal to type it at; pipe it in with --password-stdin, or take --link' }
  const first = await askHidden(input, output, 'New password: ')
  if (first === undefined) return { problem: 'interrupted' }
  const answer = checked(first)
  if ('problem' in answer) return answer
  return (await askHidden(input, output, 'Once more: ')) === first ? answer : { problem: 'the two are not the same' }
}

function checked(text: string): PasswordInput {
  const parsed = newPassword.safeParse(text)
  if (parsed.success) return { password: parsed.data }
  return { problem: parsed.error.issues.map(({ message }) => message).join(', ') }
}

async function firstLine(input: NodeJS.ReadableStream): Promise<string> {
  const parts: Buffer[] = []
  let bytes = 0
  for await (const part of input) {
    parts.push(Buffer.from(part))
    bytes += part.length
    if (bytes > MOST_BYTES) break
  }
  return Buffer.concat(parts).toString('utf8').split(/\r?\n/, 1)[0] ?? ''
}

/** What is typed until Enter; nothing of it is shown. Undefined on Ctrl-C. */
function askHidden(input: ReadStream, output: NodeJS.WritableStream, question: string): Promise<string | undefined> {
  output.write(question)
  const wasRaw = input.isRaw
  input.setRawMode(true)
  input.setEncoding('utf8')
  input.resume()
  return new Promise((done) => {
    let typed: string[] = []
    const end = (answer: string | undefined) => {
      input.off('data', read)
      input.setRawMode(wasRaw)
      input.pause()
      output.write('\n')
      done(answer)
    }
    // A paste comes as one piece, with its line end.
    const read = (text: string | Buffer) => {
      for (const character of text.toString()) {
        if (character === INTERRUPT) return end(undefined)
        if (ENDS.includes(character)) return end(typed.join(''))
        typed = ERASERS.includes(character) ? typed.slice(0, -1) : [...typed, character]
      }
    }
    input.on('data', read)
  })
}
