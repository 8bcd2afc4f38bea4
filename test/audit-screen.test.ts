import { expect, test } from 'vitest'
import { testDatabase } from './support/database.ts'
import { testPages } from './support/page.ts'

const database = await testDatabase()
const { pool } = database
const { get } = await testPages(database)
await pool.query(
  `insert into audit_log (at, actor, via, action, subject, reason, before, after) values
     ('2026-11-29T14:02:07Z', 'person:mia', 'page', 'sent', 'send:invoice:INV-1042:paid', 'seen in the log', '{"state":"needs_review","version":4}', '{"state":"sent","version":5}'),
     ('2026-11-29T14:03:00Z', 'token:<b>', 'api', 'replay', 'event:7', '<img src=x onerror=alert(1)>', null, '{"status":"<script>alert(1)</script>"}')`,
)

test('the audit says who changed what, from what to what, why and by which way, and links to it', async () => {
  const { text } = await get('/ops/audit?since=2026-11-29&until=2026-11-30')

  expect(text).toContain('2026-11-29 14:02:07')
  expect(text).toContain('person:mia <span class="muted">by page</span>')
  expect(text).toContain('<a href="/ops/sends/invoice%3AINV-1042%3Apaid">send:invoice:INV-1042:paid</a>')
  expect(text).toContain('<div>state: needs_review → sent</div><div>version: 4 → 5</div>')
  expect(text).toContain('seen in the log')
  expect(text).toContain('<a href="/ops/events/7">event:7</a>')
  expect(text).not.toMatch(/<script>alert|<img src=x|token:<b>/)
})

test('the audit is narrowed by its address, shows the form again for a wrong one, and is exported as it is narrowed', async () => {
  const rows = async (query: string) => (await get(`/ops/audit?${query}`)).text.match(/data-row=/g)?.length ?? 0

  expect(await rows('actor=person%3Amia&action=sent')).toBe(1)
  expect(await rows('subject=event%3A7')).toBe(1)
  expect(await rows('actor=nobody')).toBe(0)
  expect((await get('/ops/audit?since=x')).status).toBe(400)

  const csv = await get('/ops/audit.csv?action=sent', 'reader')
  expect(csv.headers['content-type']).toBe('text/csv; charset=utf-8')
  expect(csv.text.match(/INV-1042/g)).toHaveLength(1)
  expect(csv.text).not.toContain('event:7')
  const { rows: exported } = await pool.query(`select actor, via, action, subject from audit_log where action = 'export'`)
  expect(exported).toEqual([{ actor: 'person:rob', via: 'page', action: 'export', subject: 'audit' }])
})

test('what happened by itself says so, in words, and its times are those of who looks', async () => {
  await pool.query(`insert into audit_log (at, actor, via, action, subject, reason)
    values ('2026-11-29T21:30:00Z', 'oncehook', 'oncehook', 'pause sending', 'sending', '5 calls in a row ended unknown'),
      ('2026-11-29T21:40:00Z', 'person:mia', 'page', 'retry', 'send:k', 'not in the log')`)
  await pool.query(`update people set settings = jsonb_build_object('timeZone', 'Europe/Berlin') where name = 'mia'`)

  const { text } = await get('/ops/audit?since=2026-11-29+22:29&until=2026-11-29+22:41')

  expect(text).toContain('oncehook <span class="muted">by itself</span>')
  expect(text).toContain('<td>send it again</td>')
  expect(text).toContain('Times in Europe/Berlin')
  expect(text).toContain('>2026-11-29 22:30:00</time>')
  expect(text).toContain('<option value="retry">send it again</option>')
  expect(text.match(/data-row=/g)).toHaveLength(2)
})
