import { answerSentence } from './answer.ts'
import type { Send } from './send-queries.ts'
import { lineText, type StoryLine } from './story-lines.ts'
import { durationText, exactTimeText, sendLabels } from './words.ts'

/** As many lines of a timeline go into a ticket. */
const MOST_LINES = 6

/** A send in ten plain lines at most, for a ticket. */
export function sendText(send: Send, lines: readonly StoryLine[], address: string, zone = 'UTC'): string {
  const [first] = lines
  const told = lines.map(
    (line, index) => `${index === 0 ? exactTimeText(line.at, zone) : offsetOf(line.at, first?.at ?? line.at)}  ${lineText(line)}`,
  )
  const left = told.length - MOST_LINES
  const shown = left > 0 ? [told[0] ?? '', `… ${left + 1} more …`, ...told.slice(left + 2)] : told
  return [
    `${send.dedupe_key}: ${sendLabels[send.status].word}`,
    answerSentence(send, zone),
    [
      `To ${send.recipient}`,
      send.subject !== null && `subject: ${send.subject}`,
      send.message_id !== null && `message ${send.message_id}`,
    ]
      .filter(Boolean)
      .join(' · '),
    ...shown,
    address,
  ]
    .map(onOneLine)
    .join('\n')
}

/** `+240 ms` after the first moment. */
export function offsetOf(at: Date, first: Date): string {
  return `+${durationText(at.getTime() - first.getTime())}`
}

/** Text without anything that could break a line, or move or hide other text: that is told by its number. */
export const onOneLine = (text: string) =>
  text
    .toWellFormed()
    .replace(
      /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
      (character) => `<U+${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, '0')}>`,
    )
