import { describe, expect, test } from 'vitest'
import { type AnswerFacts, answerSentence } from '../src/ops/answer.ts'
import {
  ageText,
  attemptLabels,
  countText,
  dedupeLabels,
  durationText,
  eventLabels,
  listTimeText,
  sendLabels,
  shareText,
  timeText,
  zonedTimeText,
} from '../src/ops/words.ts'

const at = (time: string) => new Date(`2026-11-29T${time}Z`)
const send: AnswerFacts = {
  dedupe_key: 'invoice:INV-1042:paid',
  status: 'queued',
  state: 'queued',
  needs_review: false,
  version: 1,
  policy: 'claim',
  recipient: 'ada@example.com',
  subject: null,
  source_event: null,
  requested_by: 'token:test',
  queued_at: at('14:02:07'),
  send_after: null,
  claimed_at: null,
  sending_at: null,
  message_id: null,
  completed_at: null,
  delivered_at: null,
  bounced_at: null,
  bounce_kind: null,
  complained_at: null,
  settled_at: null,
  settled_by: null,
  last_error: null,
  eta: null,
}
const call = (outcome: string) => ({ outcome, called_at: at('14:02:08') })
const uncalled = { outcome: 'never_called', called_at: null }

describe('the answer', () => {
  test.each<[Partial<AnswerFacts>, string]>([
    [{ status: 'queued' }, 'Waiting to be sent since 2026-11-29 14:02:07 UTC.'],
    [
      { status: 'queued', eta: at('14:08:00') },
      'Waiting to be sent since 2026-11-29 14:02:07 UTC, at about 2026-11-29 14:08:00 UTC.',
    ],
    [
      { status: 'queued', send_after: at('14:03:00'), last_error: '429 rate_limited: too many requests' },
      'Waiting to be sent since 2026-11-29 14:02:07 UTC, not before 2026-11-29 14:03:00 UTC. Before: 429 rate_limited: too many requests.',
    ],
    [{ status: 'queued', attempts: [call('unknown')] }, 'Waiting to be sent again since 2026-11-29 14:02:07 UTC.'],
    [{ status: 'queued', attempts: [uncalled] }, 'Waiting to be sent since 2026-11-29 14:02:07 UTC.'],
    [
      { status: 'claimed', claimed_at: at('14:02:09') },
      'About to be sent: a worker took the key at 2026-11-29 14:02:09 UTC. This call has not begun.',
    ],
    [{ status: 'sending', sending_at: at('14:02:09') }, 'Being sent now: the call to Inboxili began at 2026-11-29 14:02:09 UTC.'],
    [
      { status: 'sent', completed_at: at('14:02:09') },
      'Accepted by Inboxili for ada@example.com at 2026-11-29 14:02:09 UTC. No report of its delivery yet.',
    ],
    [
      { status: 'sent', completed_at: at('14:02:09'), attempts: [call('accepted')] },
      'Accepted by Inboxili for ada@example.com at 2026-11-29 14:02:09 UTC. No report of its delivery yet. Sent once, 1 call.',
    ],
    [
      { status: 'sent', completed_at: at('14:02:09'), attempts: [call('refused'), uncalled, call('accepted')] },
      'Accepted by Inboxili for ada@example.com at 2026-11-29 14:02:09 UTC. No report of its delivery yet. Sent once, 2 calls.',
    ],
    [
      { status: 'sent', completed_at: at('14:02:09'), bounced_at: at('14:05:00'), bounce_kind: 'soft' },
      'Accepted by Inboxili for ada@example.com at 2026-11-29 14:02:09 UTC. A soft bounce was reported at 2026-11-29 14:05:00 UTC.',
    ],
    [
      { status: 'sent', completed_at: at('14:07:10'), settled_by: 'person:mia' },
      'Taken as sent to ada@example.com, as mia decided at 2026-11-29 14:07:10 UTC. No report of its delivery yet.',
    ],
    [
      { status: 'sent', completed_at: at('14:07:10'), settled_by: 'person:person:mia' },
      'Taken as sent to ada@example.com, as mia decided at 2026-11-29 14:07:10 UTC. No report of its delivery yet.',
    ],
    [
      { status: 'delivered', delivered_at: at('14:02:31'), attempts: [call('accepted')] },
      'Delivered to ada@example.com at 2026-11-29 14:02:31 UTC, reported by Inboxili. Sent once, 1 call.',
    ],
    [
      { status: 'delivered', delivered_at: at('14:02:31'), attempts: [call('unknown'), call('refused'), call('accepted')] },
      'Delivered to ada@example.com at 2026-11-29 14:02:31 UTC, reported by Inboxili. 2 of its 3 calls may have sent it.',
    ],
    [
      { status: 'delivered', delivered_at: at('14:02:31'), complained_at: at('15:00:00') },
      'Delivered to ada@example.com at 2026-11-29 14:02:31 UTC, reported by Inboxili. The recipient complained at 2026-11-29 15:00:00 UTC.',
    ],
    [
      { status: 'bounced', bounced_at: at('14:03:00'), bounce_kind: 'hard' },
      'Not delivered to ada@example.com: it bounced at 2026-11-29 14:03:00 UTC (hard).',
    ],
    [
      { status: 'bounced', bounced_at: at('14:03:00'), bounce_kind: 'unknown', delivered_at: at('14:02:31') },
      'Not delivered to ada@example.com: it bounced at 2026-11-29 14:03:00 UTC (of unknown kind). A delivery was reported too, at 2026-11-29 14:02:31 UTC.',
    ],
    [
      { status: 'needs_review', last_error: 'no answer in 15 s' },
      "We don't know whether this email was sent: no answer in 15 s. It will not be sent again unless a person decides.",
    ],
    [
      { status: 'needs_review', policy: 'prefer_duplicate', last_error: '502 after the request' },
      "We don't know whether this email was sent: 502 after the request. Its policy may send it again, at most 3 calls in all, unless a person decides first.",
    ],
    [
      { status: 'needs_review', delivered_at: at('14:02:31'), bounced_at: at('14:03:00') },
      "We don't know whether this email was sent. It will not be sent again unless a person decides. A delivery was reported at 2026-11-29 14:02:31 UTC. A bounce was reported at 2026-11-29 14:03:00 UTC.",
    ],
    [
      { status: 'rejected', last_error: '422 sender_not_verified' },
      'Not sent. Inboxili refused it: 422 sender_not_verified. The key is free; the next event or a replay sends it.',
    ],
    [
      { status: 'rejected', last_error: 'connection refused', send_after: at('14:10:00') },
      'Not sent: connection refused. It is tried again from 2026-11-29 14:10:00 UTC on.',
    ],
    [
      { status: 'rejected', last_error: '422 send_failed: no such domain.', attempts: [call('unknown'), call('refused')] },
      'Not sent by its last call. Inboxili refused it: 422 send_failed: no such domain. An earlier call may have sent it. The key is free; the next event or a replay sends it.',
    ],
    [{ status: 'rejected' }, 'Not sent. The key is free; the next event or a replay sends it.'],
    [
      { status: 'abandoned', settled_by: 'person:token:desk', settled_at: at('16:00:00') },
      'Closed by token:desk at 2026-11-29 16:00:00 UTC: taken as not sent, and it will not be sent.',
    ],
    [{ status: 'abandoned' }, 'Closed: taken as not sent, and it will not be sent.'],
    [
      { status: 'abandoned', policy: 'unguarded', bounced_at: at('14:03:00') },
      "Closed: we don't know whether it was sent, and its policy asks nobody; a new request sends a new email. A bounce was reported at 2026-11-29 14:03:00 UTC.",
    ],
  ])('of %j is one or two sentences', (facts, sentence) => {
    expect(answerSentence({ ...send, ...facts })).toBe(sentence)
  })

  test('names its times in the zone that is asked for', () => {
    expect(answerSentence({ ...send, status: 'sending', sending_at: at('23:30:00') }, 'Europe/Berlin')).toBe(
      'Being sent now: the call to Inboxili began at 2026-11-30 00:30:00 UTC+01:00.',
    )
  })
})

describe('numbers', () => {
  test.each<[number | bigint | null, number | undefined, string]>([
    [0, undefined, '0'],
    [1_204, undefined, '1,204'],
    [9_007_199_254_740_993n, undefined, '9,007,199,254,740,993'],
    [10_000, 10_000, '10,000'],
    [10_001, 10_000, '10,000+'],
    [null, undefined, '–'],
  ])('%s, counted up to %s, is %s', (count, most, text) => {
    expect(countText(count, most)).toBe(text)
  })

  test.each([
    [4, 1_204, '0.3 % (4 of 1,204)'],
    [0, 10, '0 % (0 of 10)'],
    [1, 100_000, '< 0.1 % (1 of 100,000)'],
    [99_999, 100_000, '> 99.9 % (99,999 of 100,000)'],
    [10, 10, '100 % (10 of 10)'],
    [0, 0, '–'],
  ])('%i of %i is %s', (part, whole, text) => {
    expect(shareText(part, whole)).toBe(text)
  })
})

describe('times', () => {
  test.each([
    [0, '0 ms'],
    [-5, '0 ms'],
    [0.7, '0 ms'],
    [812, '812 ms'],
    [999.9, '999 ms'],
    [15_249, '15.2 s'],
    [24_000, '24 s'],
    [59_999, '59.9 s'],
    [60_000, '1 min'],
    [250_000, '4 min 10 s'],
    [3_599_999, '59 min 59 s'],
    [7_500_000, '2 h 5 min'],
    [86_400_000, '1 d'],
    [273_600_000, '3 d 4 h'],
    [null, '–'],
  ])('a duration of %s ms is %s', (ms, text) => {
    expect(durationText(ms)).toBe(text)
  })

  test.each([
    [at('14:02:07'), '0 s'],
    [at('14:02:05'), '2 s'],
    [at('13:21:00'), '41 min'],
    [at('09:02:07'), '5 h'],
    [new Date('2026-11-20T14:02:07Z'), '9 d'],
    [null, '–'],
  ])('%s is %s old', (time, text) => {
    expect(ageText(time, at('14:02:07'))).toBe(text)
  })

  test.each([
    [at('14:02:07'), '14:02:07 · 4 min ago'],
    [at('14:12:07'), '14:12:07 · in 6 min'],
    [new Date('2026-11-28T14:02:07Z'), '28 Nov 14:02'],
    [new Date('2025-09-01T14:02:07Z'), '1 Sep 2025 14:02'],
    [null, '–'],
  ])('%s is listed as %s', (time, text) => {
    expect(listTimeText(time, at('14:06:07'))).toBe(text)
  })

  test.each([
    ['UTC', '2026-03-29 01:30:00', '2026-03-29 01:30:00 UTC'],
    ['Europe/Berlin', '2026-03-29 03:30:00', '2026-03-29 03:30:00 UTC+02:00'],
    ['America/New_York', '2026-03-28 21:30:00', '2026-03-28 21:30:00 UTC-04:00'],
    ['Asia/Kathmandu', '2026-03-29 07:15:00', '2026-03-29 07:15:00 UTC+05:45'],
  ])('in %s is the wall clock of that day, and its offset where nothing else names the zone', (zone, text, zoned) => {
    const time = new Date('2026-03-29T01:30:00Z')

    expect([timeText(time, zone), zonedTimeText(time, zone)]).toEqual([text, zoned])
  })

  test('in an hour that comes twice are told apart', () => {
    const [first, second] = [new Date('2026-10-25T00:30:00Z'), new Date('2026-10-25T01:30:00Z')]

    expect([first, second].map((time) => zonedTimeText(time, 'Europe/Berlin'))).toEqual([
      '2026-10-25 02:30:00 UTC+02:00',
      '2026-10-25 02:30:00 UTC+01:00',
    ])
  })

  test('that are not known are a dash, never zero', () => {
    expect([timeText(null), zonedTimeText(null)]).toEqual(['–', '–'])
  })
})

test('each label has a word of its own and an icon that ASCII knows', () => {
  for (const labels of [sendLabels, eventLabels, attemptLabels, dedupeLabels]) {
    const all = Object.values(labels)
    expect(new Set(all.map(({ word }) => word)).size).toBe(all.length)
    for (const { ascii } of all) expect(ascii).toMatch(/^[\x20-\x7e]$/)
  }
  expect(Object.values(dedupeLabels).map(({ word }) => word)).toEqual([
    'New',
    'Redelivery, same bytes',
    'Redelivery, same JSON in other bytes',
    'Conflict: same id, different content',
    'Same body under a new id',
  ])
})
