import { mkdir } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { openTab } from '../test/support/browser.ts'
import { testDatabase } from '../test/support/database.ts'
import { openOpsStage } from '../test/support/ops-stage.ts'
import { tellStories } from '../test/support/ops-stories.ts'

const TO = process.env.SCREENSHOTS_TO ?? 'docs/images'
const WIDTHS = { wide: { width: 1280, height: 800 }, narrow: { width: 390, height: 844 } } as const

test('every screen is pictured', async () => {
  const database = await testDatabase()
  const stage = await openOpsStage(database)
  const { screens } = await tellStories(database, stage)
  await mkdir(TO, { recursive: true })
  const { page, troubles } = await openTab({ baseURL: stage.baseURL, cookie: stage.cookies.operator, reducedMotion: 'reduce' })
  for (const [name, path] of screens) {
    await page.goto(path)
    for (const [size, viewport] of Object.entries(WIDTHS)) {
      await page.setViewportSize(viewport)
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        await page.screenshot({ path: `${TO}/${name.replace(/\W+/g, '-')}-${size}-${colorScheme}.png`, fullPage: true })
      }
    }
  }
  expect(troubles.filter((text) => !/status of 4/.test(text))).toEqual([])
})
