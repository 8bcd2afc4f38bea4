import type { Limits } from '../limits.ts'
import type { Cell, Level, Line } from './overview.ts'
import type { DayFacts, ProcessingFacts, ReceivingFacts, SendingFacts } from './overview-facts.ts'
import { ageText, countText, durationText, shareText } from './words.ts'

// The six cells of the overview, from facts and limits alone. Of several things that are wrong the worst is the word, the rest are lines.

const MINUTE_MS = 60_000
const MOST_OPEN = 10_000

/** Something that is wrong in a cell. */
interface Trouble extends Line {
  level: Exclude<Level, 'ok'>
  word: string
}

const attention = (word: string, text: string, href: string | null = null): Trouble => ({ level: 'attention', word, text, href })
const problem = (word: string, text: string, href: string | null = null): Trouble => ({ level: 'problem', word, text, href })
/** A line that is there when all is well, too. */
const line = (text: string, href: string | null = null): Line => ({ text, href })

function cell(name: Cell['name'], title: string, troubles: readonly (Trouble | false)[], lines: readonly (Line | false)[]): Cell {
  const wrong = troubles
    .filter((trouble) => trouble !== false)
    .sort((a, b) => Number(b.level === 'problem') - Number(a.level === 'problem'))
  return {
    name,
    title,
    level: wrong[0]?.level ?? 'ok',
    word: wrong[0]?.word ?? 'OK',
    lines: [...wrong.map(({ text, href }) => line(text, href)), ...lines.filter((it) => it !== false)],
  }
}

/** Events that come in; of the configured sources the quiet ones are judged by their own longest gaps. */
export function receivingCell(
  { requests, refused, unavailable, ack_p99_ms, last_verified }: ReceivingFacts,
  sources: readonly string[],
  longestGaps: ReadonlyMap<string, number>,
  limits: Limits,
  now: Date,
): Cell {
  const verified = last_verified.filter(({ source }) => sources.includes(source))
  const judged = verified.flatMap(({ source, at }) => {
    const gap = longestGaps.get(source)
    if (gap === undefined) return []
    const allowed = Math.max(limits.quietTimes * gap, limits.quietAtLeastMinutes * MINUTE_MS)
    return [{ source, at, isQuiet: now.getTime() - at.getTime() > allowed }]
  })
  const quiet = judged.filter(({ isQuiet }) => isQuiet)
  const [newest] = verified
  const isAllQuiet = quiet.length > 0 && quiet.length === judged.length
  return cell(
    'receiving',
    'Receiving',
    [
      unavailable > 0 && problem('Answering 503', `${countText(unavailable)} requests answered 503 in 10 min`, '/ops/sources'),
      isAllQuiet &&
        problem('Nothing arrives', `no verified event from any source for ${ageText(newest?.at ?? null, now)}`, '/ops/sources'),
      !isAllQuiet &&
        quiet.length > 0 &&
        attention('Quiet', quiet.map(({ source, at }) => `${source} quiet for ${ageText(at, now)}`).join(', '), '/ops/sources'),
      refused >= limits.refusedAtLeast &&
        refused > requests * limits.refusedShare &&
        attention('Wrong signatures', `${shareText(refused, requests)} of requests refused in 10 min`, '/ops/sources'),
      ack_p99_ms !== null &&
        ack_p99_ms > limits.ackP99Ms &&
        attention('Slow', `99 % of answers within ${Number.isFinite(ack_p99_ms) ? durationText(ack_p99_ms) : 'more than 5 s'}`),
    ],
    [
      line(newest ? `${newest.source} ${ageText(newest.at, now)} ago` : 'nothing verified yet', '/ops/sources'),
      line(`${countText(sources.length)} ${sources.length === 1 ? 'source' : 'sources'}`, '/ops/sources'),
    ],
  )
}

/** Events that wait for their rules. */
export function processingCell(
  { waiting, oldest_at, failed, quarantined, orphans }: ProcessingFacts,
  limits: Limits,
  now: Date,
): Cell {
  const waits = '/ops/events?status=pending'
  const age = oldest_at === null ? 0 : (now.getTime() - oldest_at.getTime()) / 1_000
  const wrong = [
    failed > 0 && `${countText(failed, MOST_OPEN)} failed`,
    quarantined > 0 && `${countText(quarantined, MOST_OPEN)} quarantined`,
  ].filter((text) => text !== false)
  const isLate = age > limits.waitingSeconds
  const late = `oldest waits for ${ageText(oldest_at, now)}`
  return cell(
    'processing',
    'Processing',
    [
      isLate && (age > limits.waitingProblemSeconds ? problem('Stuck', late, waits) : attention('Late', late, waits)),
      (orphans ?? 0) > 0 && problem('Without a job', `${countText(orphans)} waiting events have no job`, waits),
      wrong.length > 0 &&
        attention(
          failed > 0 ? 'Failed' : 'Quarantined',
          `${wrong.join(', ')} in 24 h`,
          '/ops/events?status=failed,quarantined&since=24h',
        ),
    ],
    [line(`${countText(waiting, MOST_OPEN)} waiting`, waits), !isLate && line(`oldest ${ageText(oldest_at, now)}`, waits)],
  )
}

/** How long the queue takes, from the rate limit's next free place on. */
export function queueDoneAt(
  { waiting, next_at }: Pick<SendingFacts, 'waiting' | 'next_at'>,
  perMinute: number,
  now: Date,
): Date | null {
  if (waiting === 0) return null
  return new Date(Math.max(now.getTime(), next_at?.getTime() ?? 0) + (waiting / perMinute) * MINUTE_MS)
}

/** The email API. */
export function sendingCell(facts: SendingFacts, perMinute: number, limits: Limits, now: Date): Cell {
  const { held_reason, held_by, held_at, waiting, rate_limited, calls, unknown } = facts
  const queue = '/ops/sends?status=queued'
  const doneAt = queueDoneAt(facts, perMinute, now)
  const takes = doneAt === null ? 0 : doneAt.getTime() - now.getTime()
  return cell(
    'sending',
    'Sending',
    [
      held_reason !== null &&
        problem(
          'Paused',
          `${held_reason}${held_by === null ? '' : `, by ${held_by}`}, for ${ageText(held_at, now)}; an operator may resume`,
          '/ops/sending',
        ),
      calls > 0 &&
        unknown > 0 &&
        unknown >= calls * limits.unknownShare &&
        attention('Unknown outcomes', `${shareText(unknown, calls)} of calls unknown in 1 h`, '/ops/sends?unknown_since=1h'),
      takes > limits.queueMinutes * MINUTE_MS && attention('Long queue', `queue takes about ${durationText(takes)}`, queue),
      rate_limited > 0 &&
        attention('Slower', rate_limited === 1 ? '429 once in 10 min' : `429 ${countText(rate_limited)} times in 10 min`),
    ],
    [
      line(
        `queue ${countText(waiting, 10 * MOST_OPEN)}${takes > 0 && held_reason === null ? `, about ${durationText(takes)}` : ''}`,
        queue,
      ),
    ],
  )
}

/** What the email API says of its emails afterwards; nothing is judged where no source brings reports. */
export function reportsCell(
  { accepted, last_report_at, matching, matching_reason }: SendingFacts,
  { reported, unreported }: Pick<DayFacts, 'reported' | 'unreported'>,
  hasSource: boolean,
  limits: Limits,
  now: Date,
): Cell {
  const all = reported + unreported
  const missing = '/ops/sends?status=sent&since=24h&until=1h'
  const isSilent =
    accepted >= limits.silentAfterAccepted &&
    (last_report_at === null || now.getTime() - last_report_at.getTime() > limits.silentMinutes * MINUTE_MS)
  const isShort = all > 0 && unreported > all * limits.unreportedShare
  const latest = last_report_at === null ? 'none yet' : `latest ${ageText(last_report_at, now)} ago`
  if (!hasSource) return cell('reports', 'Delivery reports', [], [line('no source brings them')])
  return cell(
    'reports',
    'Delivery reports',
    [
      isSilent &&
        problem(
          'Problem',
          `none ${last_report_at === null ? 'yet' : `for ${ageText(last_report_at, now)}`}, ${countText(accepted)} accepted in ${limits.silentMinutes} min`,
          missing,
        ),
      isShort && attention('Missing', `${shareText(unreported, all)} of sends older than 1 h have none`, missing),
      matching === 'suggest' &&
        attention(
          'Suggestions only',
          `matching settles nothing by itself${matching_reason === null ? '' : `: ${matching_reason}`}`,
          '/ops/review?tab=reports',
        ),
    ],
    [
      !isSilent && line(latest),
      !isShort && all > 0 && line(`${countText(reported)} of ${countText(all)} reported in 24 h`, missing),
    ],
  )
}

/** Sends that wait for a person. */
export function decisionsCell(
  { open, oldest_open_at }: Pick<SendingFacts, 'open' | 'oldest_open_at'>,
  limits: Limits,
  now: Date,
): Cell {
  const desk = '/ops/review'
  const word = `${countText(open, MOST_OPEN)} open`
  const oldest = `oldest ${ageText(oldest_open_at, now)}`
  const isOld = oldest_open_at !== null && now.getTime() - oldest_open_at.getTime() > limits.oldestDecisionHours * 60 * MINUTE_MS
  const trouble = isOld ? problem(word, oldest, desk) : open > 0 && open >= limits.openDecisions && attention(word, oldest, desk)
  return cell(
    'decisions',
    'Decisions',
    [trouble],
    [!trouble && line(open === 0 ? 'nothing is open' : `${word}, ${oldest}`, desk)],
  )
}

/** The database, and those who sweep up in it. */
export function storageCell(
  sweep: { seconds: number | null; workers: number },
  { orphans }: Pick<ProcessingFacts, 'orphans'>,
  limits: Limits,
): Cell {
  const { seconds, workers } = sweep
  const isLate = workers > 0 && seconds !== null && seconds > limits.sweepSeconds
  const since = seconds === null ? 'no sweep yet' : `sweep ${durationText(Math.floor(seconds) * 1_000)} ago`
  return cell(
    'storage',
    'Storage',
    [
      workers === 0 && attention('No worker', 'no worker runs: nothing is processed, sent or swept'),
      isLate && attention('Sweep late', since),
    ],
    [workers > 0 && !isLate && line(since), line(`${countText(orphans)} orphans`, '/ops/events?status=pending')],
  )
}
