import type { Run } from '../events/runs.ts'
import type { Forecast } from '../follow-ups/forecast.ts'
import type { RunEmails } from '../ops/run-queries.ts'
import { countText, eventLabels, prospectWords, sendLabels, zonedTimeText } from '../ops/words.ts'
import type { Status } from '../sends/lifecycle.ts'
import { manyText, type OutputOptions, visible, words } from './output.ts'

/** A plan or a run for people: what it is about, how far it is, and what it has brought. */
export function runText(run: Run, emails: RunEmails | undefined, options: OutputOptions): string {
  const { state, id, events, next_since, done, queued, read_anew, statuses } = run
  const at = (time: Date | null) => zonedTimeText(time, options.zone)
  const rest = done - queued - read_anew
  const progress = [
    `${countText(done)} gone through: ${countText(queued)} to be processed again`,
    ...(read_anew > 0 ? [`${countText(read_anew)} read anew`] : []),
    ...(rest > 0 ? [`${countText(rest)} left as they are`] : []),
  ]
  const now = Object.entries(statuses).map(
    ([status, count]) => `${countText(count)} ${eventLabels[status as keyof typeof eventLabels].word.toLowerCase()}`, // of that column's check
  )
  const lines = [
    `${stateWords[state]}   run ${id}   ${manyText(events, 'event')}`,
    ...(next_since === null ? [] : [`More match than one run takes: plan again with --since ${next_since.toISOString()}`]),
    ...(run.forecast === null || state !== 'planned' ? [] : forecastLines(run.forecast as Forecast)), // kept as it was made
    ...(state === 'planned' ? [] : [progress.join(', ')]),
    ...(now.length === 0 ? [] : [`Now: ${now.join(', ')}`]),
    ...(emails ? [`Emails: ${emailsText(emails)}`] : []),
    ...(run.started_at === null ? [] : [`Started ${at(run.started_at)} by ${visible(run.started_by ?? '')}`]),
    ...(run.stopped_by === null ? [] : [`Stopped ${at(run.ended_at)} by ${visible(run.stopped_by)}`]),
    '',
  ]
  return words(lines.join('\n'), options)
}

function emailsText({ sent, waiting, refused, needs_review }: RunEmails): string {
  const more = [
    [waiting, 'waiting to be sent'],
    [needs_review, 'need a decision'],
  ] as const
  const texts = more.filter(([count]) => count > 0).map(([count, text]) => `${countText(count)} ${text}`)
  return [`${countText(sent)} sent`, `${countText(refused)} failed`, ...texts].join(' · ')
}

function forecastLines({ events, emails }: Forecast): string[] {
  const held = Object.entries(emails.held).map(
    ([status, count]) => [count, `held by a send: ${sendLabels[status as Status].word.toLowerCase()}`] as const, // its keys are statuses
  )
  const ofEvents = Object.entries(events).map(([each, count]) => [count, prospectWords[each as keyof typeof events]] as const)
  const lines = (list: readonly (readonly [number, string])[]) => list.map(([count, text]) => `  ${countText(count)} ${text}`)
  return [
    'Events:',
    ...lines(ofEvents),
    'Emails:',
    ...lines([
      [emails.would_send, 'would be sent'],
      ...held,
      ...(emails.key_taken > 0 ? [[emails.key_taken, 'not: the key belongs to a send to somebody else'] as const] : []),
    ]),
  ]
}

/** A forecast on one line, for whoever is to say yes. */
export function forecastText(count: number, { events, emails: { held, would_send, key_taken } }: Forecast): string {
  const of = (...statuses: Status[]) => statuses.reduce((sum, status) => sum + (held[status] ?? 0), 0)
  const parts: [number, string][] = [
    [of('sent', 'delivered', 'bounced'), 'already sent'],
    [would_send, 'would send'],
    [of('queued', 'claimed', 'sending', 'rejected'), 'on their way'],
    [of('needs_review'), 'need a decision first'],
    [of('abandoned'), 'closed'],
    [key_taken, 'whose key another recipient has'],
    ...Object.entries(events)
      .filter(([each]) => each !== 'wants_emails')
      .map(([each, some]): [number, string] => [some, shortWords[each as keyof typeof events]]), // its keys are prospects
  ]
  const told = parts.filter(([some, text]) => some > 0 || text === 'would send')
  return `Dry run: ${[manyText(count, 'event'), ...told.map(([some, text]) => `${countText(some)} ${text}`)].join(' · ')}.`
}

const stateWords: Record<Run['state'], string> = {
  planned: 'Planned',
  running: 'Running',
  stopped: 'Stopped',
  done: 'Done',
}

const shortWords: typeof prospectWords = {
  ...prospectWords,
  no_rule: 'no rule',
  no_email: 'want no email',
  fails: "can't build a key",
  needs_confirm: 'to be confirmed first',
  settles: 'delivery events',
  read_anew: 'to be read anew',
  pending: 'waiting already',
  emptied: 'without a body',
  source_gone: 'of no configured source',
  not_looked_at: 'not looked at',
}
