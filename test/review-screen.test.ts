import { randomUUID } from 'node:crypto'
import supertest from 'supertest'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { readConfig } from '../src/config.ts'
import { inTransaction } from '../src/db.ts'
import { planDecisions } from '../src/ops/bulk-decisions.ts'
import { settle } from '../src/sends/settle.ts'
import { insertAttempt, insertEvent, insertSend } from './support/ops-rows.ts'
import { testPages } from './support/page.ts'
import { jobsOf, patientDatabase, resetControl, sendRow } from './support/sends.ts'

const database = await patientDatabase()
const { pool } = database
/** What the configuration says; one test hides personal data for a while. */
let config = readConfig({ sources: {} })
const { get, submit, app, cookies } = await testPages(database, { sources: {} }, { config: () => config })

beforeEach(async () => {
  config = readConfig({ sources: {}, inboxili: { account: 'shared' } })
  await pool.query(
    `truncate email_sends, send_attempts, settlements, delivery_reports, follow_ups, webhook_events, audit_log, sending_logs, log_absences,
       decision_plans, decision_plan_sends cascade`,
  )
  await pool.query('delete from pgboss.job')
  await resetControl(pool)
})

/** What a reader of the page sees, with a blank between its blocks. */
const wordsOf = (page: string) =>
  page
    .replace(/^[\s\S]*?<p class="status"/, '<p class="status"')
    .replace(/<\/?(p|div|dt|dd|td|th|li|h\d|summary|pre|dl|tr|button|section|option|br|input)\b[^>]*>/g, ' ')
    .replace(/<[^>]*>/g, '')
    .replaceAll('&quot;', '"')
    .replaceAll('&#39;', "'")
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&')
    .replace(/\s+/g, ' ')

const CALLED = new Date(Date.now() - 5 * 3_600_000)
const at = (seconds: number) => new Date(CALLED.getTime() + seconds * 1_000)

/** A send of version 1 that was called five hours ago and never answered. */
async function unknownSend(key: string, columns: Record<string, unknown> = {}): Promise<string> {
  const recipient = String(columns.recipient ?? 'ada@example.com')
  await insertSend(pool, key, {
    state: 'needs_review',
    queued_at: CALLED,
    claimed_at: CALLED,
    last_error: 'no answer in 15 s',
    ...columns,
  })
  const id = await insertAttempt(pool, key, {
    outcome: 'unknown',
    recipient,
    claimed_at: CALLED,
    called_at: CALLED,
    ended_at: at(15),
    error: 'no answer in 15 s',
  })
  await pool.query('update email_sends set claim_token = $2 where dedupe_key = $1', [key, id])
  return id
}

async function report(messageId: string, others: Record<string, unknown> = {}): Promise<string> {
  const event = await insertEvent(pool, `${messageId}:${Math.random()}`, { source: 'inboxili' })
  await inTransaction(pool, (tx) =>
    settle(
      tx,
      {
        event,
        kind: 'delivered',
        messageId,
        recipient: 'ada@example.com',
        occurredAt: at(24),
        hasOwnTime: true,
        ...others,
      },
      false,
    ),
  )
  return event
}

/** A whole sending log of that time lacks the call. */
async function lackedByLog(attempt: string): Promise<void> {
  await pool.query(
    `with log as (insert into sending_logs (file_sha256, from_at, until_at, lines, known, missing, read_by, via, reason)
       values ($1::text, now() - interval '1 day', now(), 9, 3, 0, 'ann', 'cli', 'x') returning id)
     insert into log_absences (attempt, log) select $1::uuid, id from log`,
    [attempt],
  )
}

const audits = async () =>
  (await pool.query('select actor, via, action, subject, reason from audit_log order by id')).rows.filter(
    ({ via }) => via === 'page',
  )
/** The page that a form leads to, with what it says was done. */
async function follow(response: supertest.Response, who: 'operator' | 'reader' = 'operator') {
  expect(response.status).toBe(303)
  return get(response.headers.location as string, who)
}

describe('the desk', () => {
  test('shows the oldest case with its evidence, candidates and suggestion at once', async () => {
    await unknownSend('invoice:INV-1050:paid', {
      recipient: 'bob@example.com',
      queued_at: at(600),
      last_error: '502 after the request',
    })
    await unknownSend('invoice:INV-1042:paid')
    await report('m_93c')

    const { text, status } = await get('/ops/review')

    expect(status).toBe(200)
    const words = wordsOf(text)
    expect(words).toContain("Needs a decision 2 · oldest 5 h · all · suggested: sent 1 · not sent 0 · can't tell 1")
    expect(words).toContain('invoice:INV-1042:paid no answer in 15 s · 5 h ada@example.com suggested: sent')
    expect(words).toContain("invoice:INV-1050:paid 502 after the request · 4 h bob@example.com suggested: can't tell")
    expect(words).toContain("We don't know whether this email was sent: no answer in 15 s.")
    expect(words).toContain('request written (call 1)')
    expect(words).toContain('report "delivered" m_93c → ada@example.com, parked: account not exclusive')
    expect(words).toContain(
      "Suggestion: SENT · grade B: recipient and the report's own time, 24 s after the call, only candidate of 1, rule v2",
    )
    expect(words).toContain('Also for this recipient ±24 h: 0 other sends, 1 parked report.')
    expect(words).toContain('4 Attach m_93c')
    expect(text.indexOf('INV-1042')).toBeLessThan(text.indexOf('INV-1050'))
  })

  test('shows the case that was asked for, and says of one that is closed that it needs nothing', async () => {
    await unknownSend('k1')
    await unknownSend('k2', { recipient: 'bob@example.com', queued_at: at(1) })
    await insertSend(pool, 'done', { state: 'abandoned' })

    expect((await get('/ops/review?key=k2')).text).toContain('<h2 class="key">k2</h2>')
    const closed = wordsOf((await get('/ops/review?key=done')).text)
    expect(closed).toContain('done needs no decision any more.')
    expect((await get('/ops/review?key=done')).text).toContain('<h2 class="key">k1</h2>')
    expect(wordsOf((await get('/ops/review?key=nobody')).text)).toContain('No send has the key nobody.')
  })

  test('is filtered by suggestion', async () => {
    await unknownSend('fits')
    await report('m1')
    await unknownSend('second', { recipient: 'bob@example.com' })

    expect((await get('/ops/review?suggestion=sent')).text).not.toContain('second')
    expect((await get('/ops/review?suggestion=cant_tell')).text).toContain('<h2 class="key">second</h2>')
    expect(wordsOf((await get('/ops/review?suggestion=not_sent')).text)).toContain(
      'Nothing that needs a decision has this suggestion. Show all',
    )
    expect((await get('/ops/review?suggestion=perhaps')).status).toBe(400)
  })

  test('says when nothing needs a decision', async () => {
    expect(wordsOf((await get('/ops/review')).text)).toContain('Nothing needs a decision.')
  })

  test('a reader sees the evidence, and text instead of forms', async () => {
    await unknownSend('k1')

    const { text } = await get('/ops/review', 'reader')

    expect(wordsOf(text)).toContain('Deciding needs role operator.')
    expect(text).not.toContain('<form action="/ops/review')
    expect((await submit('/ops/review/decide/k1', { version: '1', decision: 'sent', reason: 'x' }, 'reader')).status).toBe(403)
    expect(await sendRow(pool, 'k1', 'state')).toEqual({ state: 'needs_review' })
  })

  test('masks addresses for a reader where the configuration hides personal data', async () => {
    await unknownSend('k1')
    await report('m1')
    config = readConfig({ sources: {}, inboxili: { account: 'shared' }, ops: { hidePersonalData: true } })

    for (const path of ['/ops/review', '/ops/review?tab=reports']) {
      expect((await get(path, 'reader')).text).not.toContain('ada@example.com')
      expect((await get(path, 'reader')).text).toContain('a•••@example.com')
      expect((await get(path)).text).toContain('ada@example.com')
    }
  })

  test('C-67 hostile text stays text', async () => {
    const hostile = '<img src=x onerror=alert(1)>"\'&\u202e\u200b'
    await unknownSend(`k:${hostile}`, { last_error: hostile, recipient: `${hostile}@example.com` })
    await report(`m${hostile}`, { recipient: `${hostile}@example.com` })

    for (const path of ['/ops/review', '/ops/review?tab=reports', `/ops/review/again/${encodeURIComponent(`k:${hostile}`)}`]) {
      const { text, status } = await get(path)
      expect(status).toBe(200)
      expect(text).not.toContain('<img')
      expect(text).toContain('&lt;img src=x')
      expect(text).toContain('<span class="chip">U+202E</span>')
    }
  })
})

describe('deciding', () => {
  test('it was sent: saved with its message, the next case is open, and the row has left the list', async () => {
    await unknownSend('k1')
    await report('m_93c')
    await unknownSend('k2', { recipient: 'bob@example.com', queued_at: at(1) })
    const { text } = await get('/ops/review')
    expect(text).toContain('name="next" value="k2"')
    expect(text).toContain('name="message_id" value="m_93c" checked')

    const saved = await submit('/ops/review/decide/k1', {
      version: '1',
      decision: 'sent',
      message_id: 'm_93c',
      reason: 'in the dashboard',
      preset: 'seen in the sending log',
      next: 'k2',
    })

    const page = await follow(saved)
    expect(wordsOf(page.text)).toContain('Saved: k1 was sent. Reopen')
    expect(page.text).toContain('<a href="/ops/sends/k1#reopen">Reopen</a>')
    expect(page.text).toContain('<h2 class="key">k2</h2>')
    expect(page.text).not.toContain('data-row="k1"')
    expect(await sendRow(pool, 'k1', 'status', 'message_id')).toEqual({ status: 'delivered', message_id: 'm_93c' })
    expect(await audits()).toEqual([
      {
        actor: 'person:mia',
        via: 'page',
        action: 'sent',
        subject: 'send:k1',
        reason: 'seen in the sending log: in the dashboard',
      },
    ])
  })

  test('not sent, leave it: a preset alone is a reason', async () => {
    await unknownSend('k1')

    const page = await follow(
      await submit('/ops/review/decide/k1', {
        version: '1',
        decision: 'abandoned',
        reason: '',
        preset: 'the customer says it never came',
        suggestion: 'cant_tell',
      }),
    )

    expect(wordsOf(page.text)).toContain('Saved: k1 was not sent, and is left so.')
    expect(await sendRow(pool, 'k1', 'state', 'settled_by')).toEqual({ state: 'abandoned', settled_by: 'person:mia' })
    expect((await audits())[0]).toMatchObject({ action: 'abandoned', reason: 'the customer says it never came' })
  })

  test('without a reason nothing is saved, and the form comes back', async () => {
    await unknownSend('k1')

    const refused = await submit('/ops/review/decide/k1', { version: '1', decision: 'sent', reason: '  ' })

    expect(refused.status).toBe(400)
    expect(wordsOf(refused.text)).toContain('There is a problem reason: must say why')
    expect(refused.text).toContain('action="/ops/review/decide/k1"')
    expect(refused.text).toContain('<title>Error: not saved')
    expect(await sendRow(pool, 'k1', 'version')).toEqual({ version: 1 })
  })

  test('I16 what has changed meanwhile is told, nothing is applied, and the reason stays', async () => {
    const attempt = await unknownSend('k1')
    await pool.query(`update send_attempts set message_id = 'm1' where id = $1`, [attempt])
    await report('m1')

    const refused = await submit('/ops/review/decide/k1', { version: '1', decision: 'abandoned', reason: 'not in the log' })

    expect(refused.status).toBe(409)
    const words = wordsOf(refused.text)
    expect(words).toContain('It changed while you had this open')
    expect(words).toContain('a delivery report settled it as sent (grade A).')
    expect(words).toContain('Your decision was not saved.')
    expect(words).toContain('Status ? Needs a decision ✓ Delivered')
    expect(words).toContain('Version 1')
    expect(refused.text).toContain('value="not in the log"')
    expect(words).toContain('Keep this')
    expect(words).toContain('Decide again')
    expect(await sendRow(pool, 'k1', 'status')).toEqual({ status: 'delivered' })
    expect(await audits()).toEqual([])
  })

  test('I16 two browsers at once: one decision is saved, the other is told of it', async () => {
    await unknownSend('k1')
    const fields = { version: '1', reason: 'x' }

    const answers = await Promise.all([
      submit('/ops/review/decide/k1', { ...fields, decision: 'sent' }),
      submit('/ops/review/decide/k1', { ...fields, decision: 'abandoned' }),
    ])

    expect(answers.map(({ status }) => status).sort()).toEqual([303, 409])
    expect(wordsOf(answers.find(({ status }) => status === 409)?.text ?? '')).toMatch(/mia settled it as (sent|abandoned)\./)
    expect(await audits()).toHaveLength(1)
  })

  test('a double click is one decision with one answer', async () => {
    await unknownSend('k1')
    const fields = { form: randomUUID(), version: '1', decision: 'sent', reason: 'x' }

    const first = await submit('/ops/review/decide/k1', fields)
    const second = await submit('/ops/review/decide/k1', fields)

    expect(second.headers.location).toBe(first.headers.location)
    expect(await audits()).toHaveLength(1)
  })

  test('send it again has a page of its own and wants the words', async () => {
    await unknownSend('k1')
    const page = await get('/ops/review/again/k1')
    expect(wordsOf(page.text)).toContain('If the first email did go out, ada@example.com gets it twice.')
    expect(wordsOf(page.text)).toContain('request written (call 1)')

    const refused = await submit('/ops/review/again/k1', { version: '1', reason: 'not in the log', words: 'yes' })
    expect(refused.status).toBe(400)
    expect(wordsOf(refused.text)).toContain("words: type “send again”, as it can't be undone")
    expect(refused.text).toContain('value="not in the log"')
    expect(await jobsOf(pool, 'k1')).toEqual([])

    const saved = await follow(
      await submit('/ops/review/again/k1', { version: '1', reason: 'not in the log', words: 'Send again ' }),
    )
    expect(wordsOf(saved.text)).toContain('Saved: k1 waits to be sent again.')
    expect(await sendRow(pool, 'k1', 'state')).toEqual({ state: 'queued' })
    expect(await jobsOf(pool, 'k1')).toHaveLength(1)
  })

  describe('where a resend takes two people', () => {
    const fields = { version: '1', reason: 'not in the log', words: 'send again' }
    beforeEach(async () => {
      config = readConfig({ sources: {}, ops: { secondPerson: true } })
      await pool.query(`update people set role = 'operator' where name = 'rob'`)
    })
    afterEach(() => pool.query(`update people set role = 'reader' where name = 'rob'`))

    test('the first one asks, and is told that another is waited for instead of the form', async () => {
      await unknownSend('k1')
      const before = await get('/ops/review/again/k1')

      const asked = await follow(await submit('/ops/review/again/k1', fields))
      const after = await get('/ops/review/again/k1')
      const again = await submit('/ops/review/again/k1', fields)

      expect(wordsOf(before.text)).toContain('It takes two people: it is called when another person has said so too.')
      expect(before.text).toContain('Ask for it</button>')
      expect(before.text).not.toContain('curl')
      expect(wordsOf(asked.text)).toContain('Noted: k1 is sent again when another person says so too.')
      expect(wordsOf(asked.text)).toContain('mia wants it sent again, which another person must say too: not in the log')
      expect(wordsOf(asked.text)).toMatch(/suggested: can't tell ?asked for by mia, /)
      expect(wordsOf(after.text)).toMatch(/You have asked for it .*: not in the log\. It waits for another person/)
      expect(after.text).not.toContain('name="words"')
      expect(again.status).toBe(409)
      expect(wordsOf(again.text)).toContain('You have asked for it already')
      expect(await sendRow(pool, 'k1', 'state')).toEqual({ state: 'needs_review' })
    })

    test('the second one is told that it is sent, and then it is', async () => {
      await unknownSend('k1')
      await submit('/ops/review/again/k1', fields)

      const page = await get('/ops/review/again/k1', 'reader')
      const saved = await submit('/ops/review/again/k1', { ...fields, reason: 'so do I' }, 'reader')

      expect(wordsOf(page.text)).toMatch(
        /mia has asked for it .*: not in the log\. You are the second: it is sent when you say so too\./,
      )
      expect(page.text).toContain('Send it again</button>')
      expect(page.text).not.toContain('curl')
      expect(saved.status).toBe(303)
      expect(await sendRow(pool, 'k1', 'state')).toEqual({ state: 'queued' })
    })

    test('an ask is told as one and is no decision', async () => {
      await unknownSend('k1')
      await submit('/ops/review/again/k1', fields)
      const asked = wordsOf((await get('/ops/sends/k1')).text)
      await submit('/ops/review/again/k1', fields, 'reader')
      const decided = wordsOf((await get('/ops/sends/k1')).text)

      expect(asked).toContain('Asked mia: send it again, if another person says so too, because "not in the log" (page)')
      expect(asked).not.toContain('Decided mia')
      expect(asked).toContain('Audit (0 decisions, asked for once)')
      expect(decided).toContain('Decided rob: send it again, because "not in the log" (page)')
      expect(decided).toContain('Audit (1 decision, asked for once)')
    })

    test('a plan tells its maker that another has to carry it out, and names the maker where that is done', async () => {
      await lackedByLog(await unknownSend('k1'))
      const check = { sends: '1 k1', decision: 'retry', preset: '', reason: 'not in the log', which: 'ticked' }
      const path = String((await submit('/ops/review/check', check)).headers.location).split('?')[0] ?? ''

      const own = await get(path)
      const refused = await submit(path, {})
      const others = await get(path, 'reader')
      await submit(path, {}, 'reader')
      const done = await get(path)

      for (const page of [own, refused]) {
        expect(wordsOf(page.text)).toContain('Another person has to carry it out')
        expect(page.text).not.toContain('<button class="main">')
        expect(page.text).not.toContain('#field-')
      }
      expect([own.status, refused.status]).toEqual([200, 409])
      expect(wordsOf(others.text)).toContain('mia has made it, and the reason is theirs. You are the second')
      expect(others.text).not.toContain('curl')
      expect(wordsOf(done.text)).toContain('1 decided, 0 skipped.')
      expect(wordsOf((await get('/ops/sends/k1')).text)).toContain(
        'Decided rob: send it again, as planned by mia, because "not in the log" (page)',
      )
      expect(wordsOf((await get('/ops/audit')).text)).toContain('send it again, as planned by mia')
    })

    test('a plan that no operator has made is for nobody', async () => {
      await lackedByLog(await unknownSend('k1'))
      const send = { decision: 'retry', reason: 'x', sends: [{ key: 'k1' }] } as const
      const { id } = await planDecisions({ pool }, send, 'token:ci')

      const { text } = await get(`/ops/review/plans/${id}`)

      expect(wordsOf(text)).toContain('Nobody can carry it out')
      expect(text).not.toContain('<button class="main">')
    })
  })

  test('a report is attached by its own form', async () => {
    await unknownSend('k1')
    const event = await report('m_93c')

    const page = await follow(await submit('/ops/review/attach/k1', { version: '1', event, reason: 'same subject' }))

    expect(wordsOf(page.text)).toContain('Attached: k1 is “Delivered” now.')
    expect(await sendRow(pool, 'k1', 'status')).toEqual({ status: 'delivered' })
    const again = await submit('/ops/review/attach/k1', { version: '1', event, reason: 'same subject' })
    expect(again.status).toBe(409)
    expect(wordsOf(again.text)).toContain('The report belongs to a send already.')
  })

  test('C-68 changes nothing by GET, from elsewhere, or without a session', async () => {
    await unknownSend('k1')
    const fields = { form: randomUUID(), version: '1', decision: 'sent', reason: 'x' }
    const post = () => supertest(app).post('/ops/review/decide/k1').type('form').send(fields)

    expect((await get('/ops/review/decide/k1')).status).toBe(405)
    expect((await post().set('cookie', cookies.operator).set('sec-fetch-site', 'cross-site')).status).toBe(403)
    expect((await post().set('cookie', cookies.operator)).status).toBe(403)
    expect((await post().set('sec-fetch-site', 'same-origin')).status).toBe(401)
    expect(await sendRow(pool, 'k1', 'version')).toEqual({ version: 1 })
  })

  test('a key with any characters is decided by its own form', async () => {
    const key = 'k/%?#: ünï 🎉'
    await unknownSend(key)
    const { text } = await get(`/ops/review?key=${encodeURIComponent(key)}`)
    const action = /action="(\/ops\/review\/decide\/[^"]+)"/.exec(text)?.[1] ?? ''

    await follow(await submit(action, { version: '1', decision: 'sent', reason: 'x' }))

    expect(await sendRow(pool, key, 'state')).toEqual({ state: 'sent' })
  })
})

describe('many at once', () => {
  const check = async (fields: Record<string, string | string[]>) =>
    follow(await submit('/ops/review/check', { decision: 'abandoned', reason: 'old', which: 'ticked', ...fields }))
  const planPath = (page: string) => /action="(\/ops\/review\/plans\/[^"]+)"/.exec(page)?.[1] ?? ''

  test('check says what would change and why not, confirm does just that', async () => {
    await unknownSend('k1')
    await unknownSend('k2', { recipient: 'bob@example.com' })
    await insertSend(pool, 'done', { state: 'abandoned' })

    const checked = await check({ sends: ['1 k1', '7 k2', '1 done'] })

    const words = wordsOf(checked.text)
    expect(words).toContain('1 will change, 2 skipped. Nothing has happened yet.')
    expect(words).toContain("k1 ada@example.com can't tell will change")
    expect(words).toContain("k2 bob@example.com can't tell skipped: changed meanwhile")
    expect(words).toContain('done ada@example.com – skipped: needs no decision')
    expect(await sendRow(pool, 'k1', 'state')).toEqual({ state: 'needs_review' })

    const done = await follow(await submit(planPath(checked.text), {}))
    expect(wordsOf(done.text)).toContain('1 decided, 2 skipped.')
    expect(await sendRow(pool, 'k1', 'state')).toEqual({ state: 'abandoned' })
    expect(await audits()).toMatchObject([
      { actor: 'person:mia', via: 'page', action: 'abandoned', subject: 'send:k1', reason: 'old' },
    ])
  })

  test('all that match are a second, explicit choice; more than ten want their number', async () => {
    for (let n = 0; n < 11; n += 1) await unknownSend(`k${n}`, { recipient: `r${n}@example.com` })
    expect(wordsOf((await get('/ops/review')).text)).toContain('all 11 matching this filter')

    const checked = await check({ which: 'all' })
    expect(wordsOf(checked.text)).toContain('11 will change')
    const refused = await submit(planPath(checked.text), { confirm: '10' })
    expect(refused.status).toBe(400)
    expect(wordsOf(refused.text)).toContain('confirm: type how many it will change: 11')
    expect((await pool.query(`select from email_sends where state = 'abandoned'`)).rowCount).toBe(0)

    await follow(await submit(planPath(checked.text), { confirm: '11' }))
    expect((await pool.query(`select from email_sends where state = 'abandoned'`)).rowCount).toBe(11)
  })

  test('nothing ticked is nothing checked', async () => {
    const refused = await submit('/ops/review/check', { decision: 'sent', reason: 'x', which: 'ticked' })

    expect(refused.status).toBe(400)
    expect(wordsOf(refused.text)).toContain('tick at least one, or choose all')
  })

  test('send it again takes only what a sending log lacks', async () => {
    await lackedByLog(await unknownSend('unsent'))
    await unknownSend('unknown', { recipient: 'bob@example.com' })

    const checked = await check({ decision: 'retry', sends: ['1 unsent', '1 unknown'] })

    const words = wordsOf(checked.text)
    expect(words).toContain('unsent ada@example.com not sent will change')
    expect(words).toContain('no sending log shows that it was not sent; decide it by itself')
    await follow(await submit(planPath(checked.text), {}))
    expect(await jobsOf(pool, 'unsent')).toHaveLength(1)
    expect(await sendRow(pool, 'unknown', 'state')).toEqual({ state: 'needs_review' })
  })

  test('a plan that has expired does nothing', async () => {
    await unknownSend('k1')
    const checked = await check({ sends: '1 k1' })
    await pool.query(`update decision_plans set expires_at = now() - interval '1 s'`)

    expect((await submit(planPath(checked.text), {})).status).toBe(404)
    expect(await sendRow(pool, 'k1', 'state')).toEqual({ state: 'needs_review' })
    expect((await get(`/ops/review/plans/${randomUUID()}`)).status).toBe(404)
    expect((await get('/ops/review/plans/x')).status).toBe(404)
  })
})

describe('unmatched reports', () => {
  test('are listed by why, each with what it may be of', async () => {
    await unknownSend('k1')
    await unknownSend('k2', { queued_at: at(1) })
    await report('m_two')
    await report('m_foreign', { recipient: 'nobody@example.org' })

    const words = wordsOf((await get('/ops/review?tab=reports')).text)
    expect(words).toContain('all 2 · ambiguous 1 · foreign 1 · not ours')
    expect(words).toContain('m_foreign nobody@example.org')
    expect(words).toContain('k1 Needs a decision')
    const foreign = (await get('/ops/review?tab=reports&parked=foreign')).text
    expect(foreign).toContain('m_foreign')
    expect(foreign).not.toContain('m_two')
    expect((await get('/ops/review?tab=reports&dismissed=perhaps')).status).toBe(400)
  })

  test('one is compared with a send, and attached although it names another address, if the person says so', async () => {
    await unknownSend('k1')
    const event = await report('m1', { recipient: 'ada@work.example.org' })

    const page = await get(`/ops/review/reports/${event}?key=k1`)
    expect(wordsOf(page.text)).toContain('The report is about ada@work.example.org, the send to ada@example.com.')
    expect(page.text).toContain('name="other_mailbox"')

    const refused = await submit('/ops/review/attach/k1', { version: '1', event, reason: 'same subject' })
    expect(refused.status).toBe(409)
    expect(wordsOf(refused.text)).toContain('The report names another address.')
    await follow(await submit('/ops/review/attach/k1', { version: '1', event, reason: 'same subject', other_mailbox: 'on' }))
    expect(await sendRow(pool, 'k1', 'status')).toEqual({ status: 'delivered' })
    expect((await get(`/ops/review/reports/${event}`)).status).toBe(404)
  })

  test('one that is not ours leaves the list and can be taken back', async () => {
    const event = await report('m1', { recipient: 'nobody@example.org' })

    const refused = await submit(`/ops/review/reports/${event}/dismiss`, { reason: '' })
    expect(refused.status).toBe(400)
    const page = await follow(await submit(`/ops/review/reports/${event}/dismiss`, { reason: 'the shop sends too' }))

    expect(wordsOf(page.text)).toContain('Saved: not ours. Attach it after all')
    expect(page.text).not.toContain('data-row')
    expect(wordsOf((await get('/ops/review?tab=reports&dismissed=true')).text)).toContain('not ours, says mia')
    expect((await get('/ops/review/reports/999999999')).status).toBe(404)
    expect((await get('/ops/review/reports/x')).status).toBe(404)
  })
})

test('quarantined and failed events have a tab', async () => {
  await insertEvent(pool, 'evt_9', { status: 'quarantined', processed_at: null, error: 'not JSON' })
  await insertEvent(pool, 'evt_8', { status: 'failed', error: 'rule 1: no address' })
  await insertEvent(pool, 'evt_7')

  const words = wordsOf((await get('/ops/review?tab=events')).text)

  expect(words).toContain('evt_9')
  expect(words).toContain('not JSON')
  expect(words).toContain('evt_8')
  expect(words).not.toContain('evt_7')
})

describe('the sending log', () => {
  const upload = (csv: string, fields: Record<string, string>, who: 'operator' | 'reader' = 'operator') => {
    const request = supertest(app)
      .post('/ops/review/log')
      .set('cookie', cookies[who])
      .set('sec-fetch-site', 'same-origin')
      .field('form', randomUUID())
    for (const [name, value] of Object.entries({ zone: 'UTC', what: 'check', reason: '', ...fields })) request.field(name, value)
    return request.attach('file', Buffer.from(csv), { filename: 'log.csv', contentType: 'text/csv' })
  }
  const csvOf = (...lines: [id: string, to: string, status: string, seconds: number][]) =>
    ['To,ID,Status,Date', ...lines.map(([id, to, status, seconds]) => `${to},${id},${status},${at(seconds).toISOString()}`)].join(
      '\r\n',
    )

  test('check says what it would do, settle does it, and what it lacks is suggested as not sent', async () => {
    await insertSend(pool, 'known', { state: 'sent', recipient: 'eve@example.com', message_id: 'm0' })
    await insertAttempt(pool, 'known', { recipient: 'eve@example.com', outcome: 'accepted', message_id: 'm0', claimed_at: at(0) })
    config = readConfig({ sources: {} })
    await unknownSend('found')
    await unknownSend('lacking', { recipient: 'bob@example.com' })
    const csv = csvOf(
      ['m8', 'x@example.org', 'sent', -3_600],
      ['m0', 'eve@example.com', 'sent', 2],
      ['m1', 'ada@example.com', 'delivered', 24],
      ['m9', 'x@example.org', 'sent', 7_200],
    )

    const checked = await upload(csv, {})

    expect(checked.status).toBe(200)
    const words = wordsOf(checked.text)
    expect(words).toContain('1 would be settled as sent')
    expect(words).toContain('1 of 2 open sends of that time are lacking, suggested as not sent')
    expect(words).toContain('It has all 1 emails that were sent for certain in that time.')
    expect(await sendRow(pool, 'found', 'state')).toEqual({ state: 'needs_review' })

    expect((await upload(csv, { what: 'settle' })).status).toBe(400)
    const settled = await follow(await upload(csv, { what: 'settle', reason: 'asked Inboxili' }))
    expect(wordsOf(settled.text)).toContain('Read: 1 settled as sent')
    expect(await sendRow(pool, 'found', 'status')).toEqual({ status: 'delivered' })
    expect(wordsOf((await get('/ops/review?suggestion=not_sent')).text)).toContain('Suggestion: NOT SENT')
  })

  test('says of times that are off by how much, and takes nothing as lacking', async () => {
    await insertSend(pool, 'known', { state: 'sent', recipient: 'eve@example.com', message_id: 'm0' })
    await insertAttempt(pool, 'known', { recipient: 'eve@example.com', outcome: 'accepted', message_id: 'm0', claimed_at: at(0) })
    await unknownSend('k1')

    const words = wordsOf(
      (await upload(csvOf(['m0', 'eve@example.com', 'sent', -18_000], ['m9', 'x@example.org', 'sent', 7_200]), {})).text,
    )

    expect(words).toContain('Nobody can tell: the times are off by about 5 h, so none of them is used: give the zone.')
    expect(words).toContain('0 of 0 open sends of that time are lacking')
  })

  test('what is no sending log is refused, and so is who may not', async () => {
    const refused = await upload('a,b\r\n1,2\r\n', {})
    expect(refused.status).toBe(400)
    expect(wordsOf(refused.text)).toContain('no column looks like the message_id')
    expect((await upload('', {})).status).toBe(400)
    expect((await upload('x', { zone: 'Nowhere' })).status).toBe(400)
    expect((await upload('x', {}, 'reader')).status).toBe(403)
    expect((await submit('/ops/review/log', { zone: 'UTC', what: 'check' })).status).toBe(400)
    expect(wordsOf((await get('/ops/review/log', 'reader')).text)).toContain('It needs the role operator.')
  })
})

test('each form of the desk says how to do the same by the API', async () => {
  await unknownSend('k1')
  const event = await report('m_93c')
  const checked = await follow(await submit('/ops/review/check', { decision: 'sent', reason: 'x', which: 'all' }))
  const pages = await Promise.all(
    ['/ops/review', '/ops/review/again/k1', `/ops/review/reports/${event}?key=k1`, '/ops/review/log'].map((path) => get(path)),
  )

  const forms = [checked, ...pages].flatMap(({ text }) =>
    [...text.matchAll(/<form action="(\/ops\/review[^"]*)" method="post"[\s\S]*?<\/form>/g)].map(([form, action]) => ({
      action: action?.replace(/[0-9a-f-]{36}/, ':id').replace(`reports/${event}`, 'reports/:event'),
      call: /\$ONCEHOOK_URL(\/v1\/[a-z]+)/.exec(form)?.[1],
    })),
  )
  const calls = Object.fromEntries(forms.map(({ action, call }) => [action, call]))
  expect(calls).toEqual({
    '/ops/review/plans/:id': '/v1/resolve',
    '/ops/review/check': '/v1/resolve',
    '/ops/review/decide/k1': '/v1/sends',
    '/ops/review/attach/k1': '/v1/sends',
    '/ops/review/again/k1': '/v1/sends',
    '/ops/review/reports/:event/dismiss': '/v1/reports',
    '/ops/review/log': '/v1/reconcile',
  })
})
