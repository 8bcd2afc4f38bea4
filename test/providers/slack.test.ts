import { expect, test } from 'vitest'
import { type Attempt, BODY_H, judge } from '../support/judge.ts'

const GOOD = 'v0=074f64d3361cfd0518d3c1e20139e94269f868b434fc6153f41c5d9bd9d46489'
const MISSING = { ok: false, reason: 'missing_signature' }
const MALFORMED = { ok: false, reason: 'malformed_signature' }

const slack = (signature: string | string[], attempt: Attempt & { time?: string | string[] } = {}) =>
  judge('slack', {
    headers: { 'X-Slack-Signature': signature, 'X-Slack-Request-Timestamp': attempt.time ?? '1700000000' },
    body: BODY_H,
    secrets: ['slack_test'],
    now: 1_700_000_000,
    ...attempt,
  })

test('C-16 takes the right signature for 300 seconds, both ends included', () => {
  const at = (now: number) => slack(GOOD, { now }).verdict

  expect(at(1_700_000_000)).toEqual({ ok: true, secretIndex: 0, signedAt: 1_700_000_000 })
  expect(at(1_700_000_300).ok).toBe(true)
  expect(at(1_700_000_301)).toMatchObject({ ok: false, reason: 'timestamp_too_old' })
  expect(at(1_699_999_700).ok).toBe(true)
  expect(at(1_699_999_699)).toMatchObject({ ok: false, reason: 'timestamp_too_new' })
})

test.each([
  ['a flipped bit', GOOD.replace('=0', '=1'), { ok: false, reason: 'signature_mismatch' }],
  ['no version', GOOD.slice(3), MALFORMED],
  ['another version', GOOD.replace('v0', 'v1'), MALFORMED],
  ['63 digits', GOOD.slice(0, -1), MALFORMED],
  ['65 digits', `${GOOD}0`, MALFORMED],
  ['upper case', GOOD.toUpperCase().replace('V0', 'v0'), MALFORMED],
  ['the header twice', [GOOD, GOOD], MALFORMED],
  ['an empty header', '', MISSING],
  ['no header', [], MISSING],
])('refuses %s', (_name, signature, verdict) => {
  expect(slack(signature).verdict).toEqual(verdict)
})

// Each signature is right for the literal time.
test.each([
  ['abc', '811be9395c306801330a26256eb97dffa74feb7a5384b7a3f5e5577428b076f1'],
  ['', 'ecaa20af64ae7cd56ee65633111db64428ef1c9301dc4414daa6cbb5ff3099a8'],
  ['1e99', '9e8eb80fec1e2382481ed598b4b8f4bbaa7666a05d49d649c360f709e001ae04'],
  ['-1', 'e77a3dc522cc9d17ea91883323ab438f5d548f2ceb727cbb75f164c547012797'],
  ['0x65', '7ef66ab4b1ae25633615a612e22f25b752696570690f96d55733f612e8c90807'],
  [' 1700000000', 'edbe9d9c98c2c4b7c320ae7d98495d7bcf73a59bcaf171f8e36a33da893c843d'],
  ['Infinity', 'a8188998db35b01943e912010c4fdc46de17de8074de120cc608a7c1a9389699'],
  ['1700000000abc', '399e7df09708ca931c3cec1b7ee8c595aec584f3ec81b7889a218ad9b0c65a6c'],
])('C-17 refuses the time "%s" however rightly it is signed', (time, digest) => {
  expect(slack(`v0=${digest}`, { time, tolerance: Number.MAX_SAFE_INTEGER }).verdict).toEqual(MALFORMED)
})

test('refuses a time that is missing or comes twice', () => {
  expect(slack(GOOD, { time: [] }).verdict).toEqual(MALFORMED)
  expect(slack(GOOD, { time: ['1700000000', '1700000000'] }).verdict).toEqual(MALFORMED)
})

test('answers the check of its address with the challenge, and knows it by its hash', () => {
  const body = '{"token":"t","challenge":"3eZbrw1aB10yFvgDnqfw","type":"url_verification"}'
  const signature = 'v0=86d4b175c37f7ff4a21c8ca8c7cfebc37703fcc8cf065d2df8a4360357918c57'
  const { verdict, events, provider, request } = slack(signature, { body })

  expect(verdict.ok).toBe(true)
  expect(provider.answer?.(request)).toBe('3eZbrw1aB10yFvgDnqfw')
  expect(events).toMatchObject([
    {
      id: 'sha256:0f47a6f431b4e1a30e9b06a0821339f1e488e44f3415fbdf61d8cae6b946216f',
      idBasis: 'body_hash',
      type: 'url_verification',
    },
  ])
})

test.each([
  '{"type":"event_callback","challenge":"x","event_id":"Ev1","event":{"type":"message"}}',
  '{"type":"url_verification"}',
  '{"type":"url_verification","challenge":{"a":1}}',
  '{"event":{"type":"url_verification","challenge":"x"}}',
  '["url_verification"]',
  'payload=%7B%7D',
  '[['.repeat(10_000),
  '',
])('answers nothing else with a challenge: %#', (body) => {
  const { provider, request } = slack('', { body })

  expect(provider.answer?.(request)).toBeUndefined()
})

test('the type is that of the inner event, or of what is none', () => {
  const of = (body: string) => slack('', { body }).events.map(({ id, type, idBasis }) => [id.slice(0, 7), type, idBasis])

  expect(of('{"type":"event_callback","event_id":"Ev1","event":{"type":"app_mention"}}')).toEqual([
    ['Ev1', 'app_mention', 'provider'],
  ])
  expect(of('{"type":"event_callback","event_id":"Ev1"}')).toEqual([['Ev1', null, 'provider']])
  expect(of('{"type":"app_rate_limited","minute_rate_limited":1518467820}')).toEqual([
    ['sha256:', 'app_rate_limited', 'body_hash'],
  ])
  expect(slack('', { body: '{"event_id":"Ev1","event_time":1789999998}' }).events).toMatchObject([
    { occurredAt: new Date(1_789_999_998_000) },
  ])
})
