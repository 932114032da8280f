import '../app.css';

import { open } from '../lib/open';
import Onboarding from './Onboarding.svelte';

open(Onboarding);
