import { randomUUID } from 'node:crypto'
import supertest from 'supertest'
import { describe, expect, test } from 'vitest'
import { key, readConfig } from '../src/config.ts'
import { testDatabase } from './support/database.ts'
import { insertAttempt, insertEvent, insertFollowUp, insertReport, insertSend, insertSettlement } from './support/ops-rows.ts'
import { testPages } from './support/page.ts'
import { sendRow } from './support/sends.ts'
import { API_KEY, stripeSignature, testService } from './support/service.ts'

const { pool, url } = await testDatabase()
const setup = { sources: { stripe: { provider: 'stripe', secrets: ['whsec_test_A', 'whsec_test_B'] } } }
/** What the configuration says; one test hides personal data for a while. */
let config = readConfig(setup)
const { get, submit, app, cookies } = await testPages({ pool, url }, setup, {
  config: () => config,
  fingerprints: (given) => given.map((secret) => (secret === 'whsec_test_A' ? 'aaaa1111' : 'bbbb2222')),
})

const pathOf = (key: string) => `/ops/sends/${encodeURIComponent(key)}`
/** What a reader of the page sees, with a blank between its blocks. */
const wordsOf = (page: string) =>
  page
    .replace(/^[\s\S]*<main/, '<main')
    .replace(/<\/?(p|div|dt|dd|td|th|li|h\d|summary|pre|dl|tr|button|section)\b[^>]*>/g, ' ')
    .replace(/<[^>]*>/g, '')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')
    .replace(/\s+/g, ' ')

const at = (ms: number) => new Date(Date.parse('2026-11-29T14:02:06.881Z') + ms)

/** A receipt whose answer was lost and whose report came 24 s later; a second event asked for it too. */
async function insertDelivered(key: string, name: string) {
  const event = await insertEvent(pool, `evt_${name}`, {
    received_at: at(0),
    occurred_at: at(-900),
    redeliveries: 2,
    secret_fingerprint: 'bbbb2222',
    body: Buffer.from('x'.repeat(2_114)),
  })
  const other = await insertEvent(pool, `evt_${name}_other`, { type: 'charge.succeeded', received_at: at(400) })
  await insertSend(pool, key, {
    state: 'sent',
    source_event: event,
    requested_by: `event:${event}`,
    queued_at: at(90),
    completed_at: at(24_000),
    delivered_at: at(24_000),
    message_id: `m_${name}`,
    settled_at: at(24_000),
    settled_by: 'event',
  })
  await insertFollowUp(pool, event, key, { at: at(90) })
  await insertFollowUp(pool, other, key, { at: at(500), outcome: 'held' })
  const attempt = await insertAttempt(pool, key, {
    outcome: 'accepted',
    claimed_at: at(233),
    called_at: at(240),
    ended_at: at(15_240),
    error: 'no answer in 15 s',
    message_id: `m_${name}`,
  })
  const report = await insertEvent(pool, `evt_inb_${name}`, { source: 'inboxili', type: 'delivered', received_at: at(24_000) })
  await insertReport(pool, report, { attempt, message_id: `m_${name}`, recipient: 'ada@example.com', occurred_at: at(23_800) })
  await insertSettlement(pool, key, attempt, {
    event: report,
    grade: 'B',
    rule_version: 3,
    at: at(24_000),
    event_at: at(23_800),
    evidence: JSON.stringify({ secondsAfterClaim: 23.5 }),
  })
  return { event, other, report }
}

describe('the story of a send', () => {
  test('begins with the answer and tells each step by its distance from the first', async () => {
    const { event, report } = await insertDelivered('invoice:INV-1042:paid', '1042')

    const { text: page, status } = await get(pathOf('invoice:INV-1042:paid'))

    expect(status).toBe(200)
    const words = wordsOf(page)
    expect(words).toContain(
      'Delivered to ada@example.com at 2026-11-29 14:02:30 UTC, reported by Inboxili. Sent once, 1 call. 2 events → 1 email, because the key is taken.',
    )
    const steps = [
      '29 Nov 14:02:06.881 Event received stripe invoice.paid evt_1042, 2,114 bytes, sha256 ',
      'secret 2 of 2 (bbbb2222), created 900 ms before',
      '+0 ms Decision New: first time we see evt_1042 (2 redeliveries later: same bytes)',
      '+90 ms Follow-up rule "receipts" for evt_1042 → this send',
      '+233 ms Claim key was free → claimed for call 1, policy claim',
      '+240 ms → +15.2 s Call 1 POST /api/v1/transactional/send · no answer in 15 s → accepted all the same, as was found later, m_1042',
      '+400 ms Event received stripe charge.succeeded evt_1042_other',
      '+500 ms Follow-up rule "receipts" for evt_1042_other made no email: the key was already taken',
      '+24 s Report delivered, m_1042, of call 1, by recipient and time (grade B), evt_inb_1042',
      '+24 s Settled needs a decision → sent, by report evt_inb_1042, grade B, rule v3; 1 candidate',
    ]
    expect(steps.filter((step) => !words.includes(step))).toEqual([])
    expect(steps.map((step) => words.indexOf(step))).toEqual(steps.map((step) => words.indexOf(step)).toSorted((a, b) => a - b))
    expect(page).toContain(`<a href="/ops/events/${event}">evt_1042</a>`)
    expect(page).toContain(`<a href="/ops/events/${report}">report evt_inb_1042</a>`)
    expect(page).toContain(
      '<time datetime="2026-11-29T14:02:07.121Z" title="2026-11-29 14:02:07.121 UTC" tabindex="0">+240 ms</time>',
    )
    expect(words).toContain('Seconds after the claim 23.5')
  })

  test('is ten plain lines as text, whatever the payload holds', async () => {
    await insertDelivered('invoice:INV-1044:\n\u202Epaid', '1044')

    const { text: page } = await get(pathOf('invoice:INV-1044:\n\u202Epaid'))

    const lines = /data-copy="([^"]*)" hidden>Copy as text</.exec(page)?.[1]?.split('\n') ?? []
    expect(lines).toHaveLength(10)
    expect(lines[0]).toBe('invoice:INV-1044:<U+000A><U+202E>paid: Delivered'.replaceAll('<', '&lt;').replaceAll('>', '&gt;'))
    expect(lines[2]).toBe('To ada@example.com · subject: Your receipt · message m_1044')
    expect(lines[3]).toMatch(/^2026-11-29 14:02:06\.881Z {2}Event received: /)
    expect(lines[4]).toBe('… 5 more …')
    expect(lines[5]).toMatch(/^\+400 ms {2}Decision: /)
    expect(lines[9]).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/ops\/sends\/invoice%3AINV-1044%3A%0A%E2%80%AEpaid$/)
  })

  test('names conflicts, other bytes and secrets that are gone', async () => {
    const event = await insertEvent(pool, 'evt_conflict', { redeliveries: 3, benign_variants: 1, secret_fingerprint: 'cccc3333' })
    await pool.query(`insert into webhook_conflicts (event, body, body_sha256) values ($1, 'x', 'y')`, [event])
    await insertSend(pool, 'conflict:1', { state: 'queued', source_event: event, requested_by: `event:${event}` })
    await insertFollowUp(pool, event, 'conflict:1')

    const words = wordsOf((await get(pathOf('conflict:1'))).text)

    expect(words).toContain('a secret that is not configured any more (cccc3333)')
    expect(words).toContain(
      '(2 redeliveries later: 1 of them the same JSON in other bytes; 1 conflict: same ID, different content, kept apart, nothing sent)',
    )
    expect(words).toContain('Nothing to decide: it is under way.')
  })

  test('says who decided what and why, once', async () => {
    await insertSend(pool, 'decided:1', {
      state: 'abandoned',
      queued_at: at(0),
      settled_at: at(9_000),
      settled_by: 'person:person:mia',
    })
    const attempt = await insertAttempt(pool, 'decided:1', {
      outcome: 'unknown',
      claimed_at: at(10),
      called_at: at(20),
      ended_at: at(30),
      error: 'timeout',
    })
    await insertSettlement(pool, 'decided:1', attempt, {
      grade: 'P',
      to_state: 'abandoned',
      actor: 'person:person:mia',
      at: at(9_000),
    })
    await pool.query(
      `insert into audit_log (at, actor, via, action, subject, reason) values ($1, 'person:mia', 'page', 'abandoned', 'send:decided:1', 'customer has it')`,
      [at(9_000)],
    )

    const words = wordsOf((await get(pathOf('decided:1'))).text)

    expect(words).toContain('+9 s Decided mia: not sent, leave it, because "customer has it" (page)')
    expect(words).not.toContain('Settled needs a decision')
    expect(words).toContain('Audit (1 decision)')
  })

  test('of a send that was queued again says so at that time, and who had asked for it', async () => {
    await insertSend(pool, 'again:1', { state: 'queued', queued_at: at(60_000) })
    await insertAttempt(pool, 'again:1', {
      outcome: 'unknown',
      claimed_at: at(0),
      called_at: at(10),
      ended_at: at(20),
      error: 'timeout',
    })
    await insertAttempt(pool, 'again:1', { number: 2, outcome: 'never_called', claimed_at: at(70_000) })

    const words = wordsOf((await get(pathOf('again:1'))).text)

    expect(words).toContain('+1 min Queued again asked for by token:test, policy claim')
    expect(words).not.toContain('Asked for by')
    expect(words).toContain(
      '+1 min 10 s Claim claimed again for call 2, policy claim; given up before the call, nothing was sent',
    )
  })

  test('leads to the desk with what the evidence suggests, and shows reports that may be of it', async () => {
    await insertSend(pool, 'open:1', {
      state: 'needs_review',
      recipient: 'cy@example.com',
      queued_at: at(0),
      last_error: 'no answer in 15 s',
    })
    await insertAttempt(pool, 'open:1', {
      outcome: 'unknown',
      recipient: 'cy@example.com',
      claimed_at: at(10),
      called_at: at(20),
      ended_at: at(15_000),
      error: 'no answer in 15 s',
    })
    const report = await insertEvent(pool, 'evt_parked', { source: 'inboxili', received_at: at(19_000) })
    await insertReport(pool, report, {
      message_id: 'm_77',
      recipient: 'cy@example.com',
      match_key: 'cy@example.com',
      occurred_at: at(19_000),
      parked: 'foreign',
    })

    const { text: page } = await get(pathOf('open:1'))

    expect(page).toContain('<a class="button main" href="/ops/review?key=open%3A1">Decide…</a>')
    expect(wordsOf(page)).toContain('Suggested: sent (grade B)')
    expect(wordsOf((await get(pathOf('open:1'), 'reader')).text)).toContain('Deciding needs role operator.')
    expect(wordsOf(page)).toContain('+19 s Report delivered, m_77, perhaps of this send, parked: foreign, evt_parked')
  })

  test('of a refused send says that its key is free and leads to the replay of its event', async () => {
    const event = await insertEvent(pool, 'evt_refused')
    await insertSend(pool, 'refused:1', {
      state: 'rejected',
      source_event: event,
      requested_by: `event:${event}`,
      last_error: '422 sender_not_verified: verify it',
    })
    await insertFollowUp(pool, event, 'refused:1')
    await insertAttempt(pool, 'refused:1', {
      outcome: 'refused',
      called_at: new Date(),
      ended_at: new Date(),
      http_status: 422,
      error: '422 sender_not_verified: verify it',
    })

    const { text: page } = await get(pathOf('refused:1'))

    expect(wordsOf(page)).toContain('Not sent. Inboxili refused it: 422 sender_not_verified: verify it. The key is free')
    expect(wordsOf(page)).toContain('422 sender_not_verified: verify it → refused, nothing was sent')
    expect(page).toContain(`href="/ops/replays/new?event=${event}"`)
    expect(wordsOf((await get(pathOf('refused:1'), 'reader')).text)).toContain('Replaying its event needs role operator.')
  })
})

test('a send that thousands of events asked for has a page of bounded length', async () => {
  await insertSend(pool, 'many:1', { state: 'queued' })
  await pool.query(
    `with asked as (
       insert into webhook_events (source, event_id, id_basis, id_signed, body, body_sha256, headers, status, processed_at)
       select 'stripe', 'evt_many_' || n, 'provider', true, 'x', 'x', '{}', 'processed', now() from generate_series(1, 1000) n returning id
     )
     insert into follow_ups (event, rule, dedupe_key, outcome) select id, 'receipts', 'many:1', 'held' from asked`,
  )

  const { text: page } = await get(pathOf('many:1'))

  expect(page.match(/<span class="kind">/g)).toHaveLength(200)
  expect(wordsOf(page)).toContain('2,801 lines in the middle are left out')
  expect(wordsOf(page)).toContain('1,000 events and a request by token:test → 1 email')
})

test('C-67 what strangers wrote is text in every place of the page', async () => {
  const key = `"></h1><script>alert(1)</script>\u202E%/?#😀`
  const hostile = '<img src=x onerror=alert(1)>'
  const event = await insertEvent(pool, '<svg onload=alert(1)>', { type: '"></td><script>alert(1)</script>', source: 'stripe' })
  const message = {
    to: 'ada@example.com',
    from_email: 'b@example.com',
    from_name: hostile,
    subject: hostile,
    html_body: hostile,
    template_data: { [hostile]: hostile },
  }
  await insertSend(pool, key, {
    state: 'needs_review',
    source_event: event,
    requested_by: hostile,
    last_error: hostile,
    message: JSON.stringify(message),
  })
  await insertFollowUp(pool, event, key, { rule: hostile, error: hostile })
  await insertAttempt(pool, key, { outcome: 'unknown', called_at: new Date(), ended_at: new Date(), error: hostile })
  await pool.query(`insert into audit_log (actor, via, action, subject, reason) values ($1, $1, $1, $2, $1)`, [
    hostile,
    `send:${key}`,
  ])

  const { text: page, status } = await get(pathOf(key))

  expect(status).toBe(200)
  expect(page).not.toMatch(/<(img|svg|script>)/)
  expect(page).not.toContain('\u202E')
  expect(page).toContain(
    '<title>Needs a decision: &quot;&gt;&lt;/h1&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;U+202E&gt;%/?#😀 · Oncehook</title>',
  )
  expect(wordsOf(page)).toContain(`"></h1><script>alert(1)</script>U+202E%/?#😀`)
  expect(wordsOf(page).split(hostile).length).toBeGreaterThan(8)
  // A key in a link is one part of a path, and comes back as it was.
  const [, link = ''] = /<a [^>]*href="([^"]*\/json)">JSON</.exec(page) ?? []
  expect((await get(link)).body).toMatchObject({ dedupe_key: key, last_error: hostile })
})

describe('sends as the service itself made them', async () => {
  const service = await testService(
    { pool, url },
    {
      ...setup,
      followUps: [
        {
          name: 'receipt',
          source: 'stripe',
          type: 'invoice.paid',
          email: ({ data: { object } }: { data: { object: { id: string } } }) => ({
            key: key('made', object.id),
            to: `${object.id}@example.com`,
            from_email: 'billing@example.com',
            subject: 'Your receipt',
            html_body: '<p>Thank you</p>',
          }),
        },
      ],
    },
  )

  async function pay(event: string, object: string): Promise<void> {
    const body = JSON.stringify({ id: event, type: 'invoice.paid', livemode: true, data: { object: { id: object } } })
    const signature = stripeSignature(body, 'whsec_test_A', Math.floor(service.clock.now / 1000))
    await supertest(service.app).post('/webhooks/stripe').set('stripe-signature', signature).send(body).expect(200)
    expect(await service.drain()).toEqual([])
  }

  test('a payment that two events told of has its steps in the order of cause and effect', async () => {
    await pay('evt_made_1', 'one')
    await pay('evt_made_2', 'one')

    const { text: page } = await get(pathOf('made:one'))

    const titles = [...page.matchAll(/<span class="kind">([^<]*)</g)].map(([, title]) => title)
    const received = ['Event received', 'Decision', 'Follow-up']
    expect(titles).toEqual([...received, 'Claim', 'Call 1', ...received])
    expect(wordsOf(page)).toContain('POST /api/v1/transactional/send · accepted, ')
    expect(wordsOf(page)).toContain('2 events → 1 email, because the key is taken.')
  })

  test('C-70 an answer that repeats the key of the email API shows it nowhere; what was asked is told without it', async () => {
    const message = `Authorization: Bearer ${API_KEY} is not good`
    service.sandbox.arm({ kind: 'status', status: 422, code: 'validation_error', message }, { to: 'echo@example.com' })
    await pay('evt_made_echo', 'echo')

    for (const path of [pathOf('made:echo'), `${pathOf('made:echo')}/json`, '/ops/sends?q=made', '/ops/sends.csv?q=made']) {
      const { text } = await get(path)
      expect(text).toContain('made')
      expect(text).not.toContain(API_KEY)
    }
    const words = wordsOf((await get(pathOf('made:echo'))).text)
    expect(words).toContain('authorization: Bearer (not kept)')
    expect(words).toContain('422 validation_error: Authorization: Bearer [redacted] is not good → refused, nothing was sent')
  })
})

describe('the JSON of a send', () => {
  test('is what the API answers, without its token', async () => {
    await insertSend(pool, 'json:1', { state: 'queued' })

    const answer = await get(`${pathOf('json:1')}/json`, 'reader')

    expect(answer.status).toBe(200)
    expect(answer.headers).toMatchObject({
      'content-type': 'application/json; charset=utf-8',
      'x-content-type-options': 'nosniff',
    })
    expect(answer.body).toMatchObject({
      dedupe_key: 'json:1',
      status: 'queued',
      message: { text_body: 'secret text' },
      attempts: [],
    })
  })

  test('needs a session', async () => {
    const answer = await supertest(app).get(`${pathOf('json:1')}/json`)

    expect(answer.status).toBe(303)
    expect(answer.headers.location).toMatch(/^\/ops\/sign-in\?to=/)
  })
})

test('an unknown key says what to do, whatever it is', async () => {
  for (const key of ['never:asked', '%00', 'a'.repeat(600)]) {
    const path = key === '%00' ? '/ops/sends/%00' : pathOf(key)
    const { status, text: page } = await get(path)
    expect(status).toBe(404)
    expect(wordsOf(page)).toContain('Search for it')
    expect((await get(`${path}/json`)).status).toBe(404)
  }
})

describe('what the configuration hides from readers', () => {
  test('is not on the page, in its text or in its JSON; operators see all', async () => {
    await insertDelivered('invoice:INV-1046:paid', '1046')
    const path = pathOf('invoice:INV-1046:paid')
    config = readConfig({ ...setup, ops: { hidePersonalData: true } })
    try {
      for (const hidden of [path, `${path}/json`]) {
        const { text } = await get(hidden, 'reader')
        expect(text).not.toContain('ada@example.com')
        expect(text).not.toContain('secret text')
        expect(text).toContain('a•••@example.com')
        expect((await get(hidden, 'operator')).text).toContain('ada@example.com')
      }
    } finally {
      config = readConfig(setup)
    }
  })
})

describe('reopening a closed send', () => {
  const fields = (more: Record<string, string> = {}) => ({ version: '1', seen: 'sent', reason: 'customer has nothing', ...more })

  test('brings it to the desk, with the reason in the audit, once for a form sent twice', async () => {
    await insertSend(pool, 'reopen:1', { state: 'sent' })
    const form = randomUUID()

    const answers = [
      await submit(`${pathOf('reopen:1')}/reopen`, fields({ form })),
      await submit(`${pathOf('reopen:1')}/reopen`, fields({ form })),
    ]

    for (const { status, headers } of answers) {
      expect(status).toBe(303)
      expect(headers.location).toBe(`/ops/sends/reopen%3A1?done=${form}`)
    }
    expect(await sendRow(pool, 'reopen:1', 'state', 'version')).toEqual({ state: 'needs_review', version: 2 })
    const { rows } = await pool.query(`select actor, via, action, reason from audit_log where subject = 'send:reopen:1'`)
    expect(rows).toEqual([{ actor: 'person:mia', via: 'page', action: 'reopen', reason: 'customer has nothing' }])
    expect((await get(`/ops/sends/reopen%3A1?done=${form}`)).text).toContain('Reopened: it needs a decision now.')
  })

  test('I16 changes nothing on a stale version: it says what changed and keeps the reason', async () => {
    await insertSend(pool, 'reopen:2', { state: 'sent', version: 5, delivered_at: at(0) })

    const { status, text: page } = await submit(`${pathOf('reopen:2')}/reopen`, fields({ version: '4', reason: 'I "said" so' }))

    expect(status).toBe(409)
    expect(wordsOf(page)).toContain('It changed while you had this open')
    expect(wordsOf(page)).toContain('Your decision was not saved.')
    expect(wordsOf(page)).toContain('Status → Sent, not confirmed ✓ Delivered')
    expect(wordsOf(page)).toContain('Version 4 5')
    expect(page).toContain('<a class="button" href="/ops/sends/reopen%3A2">Keep this</a>')
    expect(page).toContain('value="I &quot;said&quot; so"')
    expect(page).toContain('<input type="hidden" name="version" value="5">')
    expect(await sendRow(pool, 'reopen:2', 'state', 'version')).toEqual({ state: 'sent', version: 5 })
  })

  test('of two at the same time one wins', async () => {
    await insertSend(pool, 'reopen:3', { state: 'sent' })

    const answers = await Promise.all(Array.from({ length: 6 }, () => submit(`${pathOf('reopen:3')}/reopen`, fields())))

    expect(answers.map(({ status }) => status).sort()).toEqual([303, 409, 409, 409, 409, 409])
    const { rows } = await pool.query(`select action from audit_log where subject = 'send:reopen:3'`)
    expect(rows).toHaveLength(1)
  })

  test('needs a reason, and keeps what was typed', async () => {
    await insertSend(pool, 'reopen:4', { state: 'sent' })

    const { status, text: page } = await submit(`${pathOf('reopen:4')}/reopen`, fields({ reason: '  ' }))

    expect(status).toBe(400)
    expect(page).toContain('<title>Error: ')
    expect(page).toContain('href="#field-reason"')
    expect(await sendRow(pool, 'reopen:4', 'state')).toEqual({ state: 'sent' })
  })

  test('is not for readers, who get text instead of a form', async () => {
    await insertSend(pool, 'reopen:5', { state: 'sent' })

    const { text: page } = await get(pathOf('reopen:5'), 'reader')
    const { status } = await submit(`${pathOf('reopen:5')}/reopen`, fields(), 'reader')

    expect(wordsOf(page)).toContain('Reopening it needs role operator.')
    expect(page).not.toContain('/reopen"')
    expect(status).toBe(403)
    expect(await sendRow(pool, 'reopen:5', 'state')).toEqual({ state: 'sent' })
  })

  test('C-68 happens by no GET, from no other site and without no session', async () => {
    await insertSend(pool, 'reopen:6', { state: 'sent' })
    const path = `${pathOf('reopen:6')}/reopen`
    const post = () =>
      supertest(app)
        .post(path)
        .type('form')
        .send({ form: randomUUID(), ...fields() })

    const got = await get(path)
    const foreign = await post().set('cookie', cookies.operator).set('sec-fetch-site', 'cross-site')
    const unknown = await post().set('cookie', cookies.operator)
    const nobody = await post().set('sec-fetch-site', 'same-origin')

    expect([got.status, foreign.status, unknown.status, nobody.status]).toEqual([405, 403, 403, 401])
    expect(await sendRow(pool, 'reopen:6', 'state')).toEqual({ state: 'sent' })
  })

  test('is told for the API and the command line, filled in', async () => {
    await insertSend(pool, 'reopen:7', { state: 'sent', version: 3 })

    const words = wordsOf((await get(pathOf('reopen:7'))).text)

    expect(words).toContain('curl -sS -X POST "$ONCEHOOK_URL/v1/sends/reopen%3A7/reopen"')
    expect(words).toContain('"version":3')
    expect(words).toContain('oncehook sends resolve reopen:7 --reopen --reason')
  })
})
