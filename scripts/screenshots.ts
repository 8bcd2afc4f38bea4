import { mkdir, stat } from 'node:fs/promises'
import type pg from 'pg'
import { expect, test } from 'vitest'
import { openTab } from '../test/support/browser.ts'
import { testDatabase } from '../test/support/database.ts'
import { insertSend } from '../test/support/ops-rows.ts'
import { openOpsStage } from '../test/support/ops-stage.ts'
import { tellStories } from '../test/support/ops-stories.ts'

const TO = process.env.SCREENSHOTS_TO ?? 'docs/images'
const LARGEST_BYTES = 150_000
const sizes = { wide: { width: 1280, height: 720 }, narrow: { width: 390, height: 844 } } as const

/** File names, and the screens of the stories that they show. */
const pictures = {
  overview: 'overview',
  review: 'review',
  reports: 'review, reports',
  sends: 'sends',
  send: 'send, delivered',
  events: 'events',
  event: 'event',
  conflict: 'event, conflicts',
  replay: 'replay',
  sources: 'sources',
  audit: 'audit',
  sandbox: 'sandbox',
  settings: 'settings',
} as const
/** These are pictured in the dark too. */
const inTheDark: readonly string[] = ['overview', 'send']

/** An hour in which payments came and went, as the processes would have counted it. */
async function addHistory(pool: pg.Pool): Promise<void> {
  const bucketsOfMs = 'array[0, 0, 3, 9, 12, 6 + n % 5, n % 7, n % 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]'
  const minutes =
    "generate_series(1, 60) as n, lateral (select date_trunc('minute', now()) - n * interval '1 minute') as m (minute)"
  await pool.query(
    `insert into source_minutes (source, minute, outcome, count)
     select 'stripe', minute, outcome, case outcome when 'accepted' then 240 + (n * 37) % 90 else 2 + n % 5 end
     from ${minutes}, unnest(array['accepted', 'duplicate']) as outcome`,
  )
  await pool.query(`insert into ack_minutes (source, minute, counts) select '', minute, ${bucketsOfMs} from ${minutes}`)
  await pool.query(
    `insert into processes (id, kind, host, pid, version, started_at, clock_ahead_ms)
     values (gen_random_uuid(), 'serve', 'oncehook-1', 7, '0.0.0', now() - interval '3 hours', 0)`,
  )
  for (let number = 900; number < 924; number += 1) {
    const at = new Date(Date.now() - (number - 899) * 420_000)
    const key = `invoice:INV-${number}:paid`
    await insertSend(pool, key, { state: 'sent', queued_at: at, completed_at: at, delivered_at: at, message_id: `m_${number}` })
  }
}

test('every screen is pictured', async () => {
  const database = await testDatabase()
  const stage = await openOpsStage(database)
  await addHistory(database.pool)
  const { screens } = await tellStories(database, stage, { withStrangers: false })
  await mkdir(TO, { recursive: true })
  const { page, troubles } = await openTab({ baseURL: stage.baseURL, cookie: stage.cookies.operator, reducedMotion: 'reduce' })

  for (const [file, name] of Object.entries(pictures)) {
    await page.goto(screens.find(([screen]) => screen === name)?.[1] ?? '')
    for (const [size, viewport] of Object.entries(sizes)) {
      await page.setViewportSize(viewport)
      for (const colorScheme of inTheDark.includes(file) ? (['light', 'dark'] as const) : (['light'] as const)) {
        await page.emulateMedia({ colorScheme })
        const path = `${TO}/${file}-${size}${colorScheme === 'dark' ? '-dark' : ''}.png`
        await page.screenshot({ path })
        expect((await stat(path)).size, path).toBeLessThanOrEqual(LARGEST_BYTES)
      }
    }
  }
  expect(troubles).toEqual([])
})
