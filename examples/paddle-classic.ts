import { defineConfig, env, key } from 'oncehook'

// Paddle Classic posts a form; all its values are texts. The secret of the source is Paddle's public key.
export default defineConfig({
  sources: {
    'paddle-classic': { provider: 'paddle-classic', secrets: env.list('PADDLE_CLASSIC_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'paddle-classic',
      type: ['payment_succeeded', 'subscription_payment_succeeded'],
      email: (alert) => ({
        key: key('order', alert.order_id, 'paid'),
        to: alert.email,
        from_email: 'billing@example.com',
        subject: `We received your payment for order ${alert.order_id}`,
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'paddle-classic',
      type: 'subscription_payment_failed',
      email: (alert) => ({
        key: key('order', alert.order_id, 'failed', alert.attempt_number ?? 1),
        to: alert.email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'paddle-classic',
      type: ['payment_refunded', 'subscription_payment_refunded'],
      email: (alert) => ({
        key: key('order', alert.order_id, 'refunded'),
        to: alert.email,
        from_email: 'billing@example.com',
        subject: 'Your refund is on its way',
        html_body: '<p>We have refunded your payment.</p>',
      }),
    },
    {
      name: 'subscription ended',
      source: 'paddle-classic',
      type: 'subscription_cancelled',
      email: (alert) => ({
        key: key('subscription', alert.subscription_id ?? alert.order_id, 'ended'),
        to: alert.email,
        from_email: 'billing@example.com',
        subject: 'Your subscription has ended',
        html_body: '<p>We are sorry to see you go.</p>',
      }),
    },
    {
      name: 'payout',
      source: 'paddle-classic',
      type: 'transfer_paid',
      email: (alert) => ({
        key: key('payout', alert.payout_id ?? alert.order_id, 'paid'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: 'Paddle has paid out',
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
