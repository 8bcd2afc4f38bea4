import { durationText } from '../ops/words.ts'
import { type OutputOptions, words } from './output.ts'
import type { Conversation } from './terminal.ts'

const BAR_WIDTH = 14
const SHOWN_EVERY_MS = 100
const SAID_EVERY_MS = 5_000

interface Progress {
  /** Says how far it is, if it is time to; what comes beside the count is asked for only then. */
  show(done: number, of: number, beside?: string): void
  /** Takes the bar away. */
  clear(): void
}

/** How far a long command is: for people a bar that is written over itself, else one line each 5 s. */
export function createProgress(
  name: string,
  { say, isWatched, ...options }: Conversation & OutputOptions,
  now: () => number = () => performance.now(),
): Progress {
  const started = now()
  let last = isWatched ? Number.NEGATIVE_INFINITY : started
  let width = 0
  const erase = () => (width > 0 ? '\r\u001b[K' : '')
  return {
    show(done, of, beside = '') {
      if (now() - last < (isWatched ? SHOWN_EVERY_MS : SAID_EVERY_MS)) return
      last = now()
      const rest = done > 0 && done < of ? `  about ${durationText(((last - started) / done) * (of - done))} left` : ''
      const text = `${done}/${of}${beside && `  ${beside}`}${rest}`
      if (!isWatched) return say(`${name}  ${text}\n`)
      const full = of === 0 ? BAR_WIDTH : Math.round((done / of) * BAR_WIDTH)
      const line = words(`${name}  ${'█'.repeat(full)}${'░'.repeat(BAR_WIDTH - full)}  ${text}`, options)
      say(erase() + line)
      width = line.length
    },
    clear() {
      if (isWatched) say(erase())
      width = 0
    },
  }
}
